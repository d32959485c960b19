// The weights of a model in a file, by name: what a run leaves, and what another may begin with.
// Names and shapes are those of torchvision's state_dict, whatever grid the model was trained on.

#include "weights/model_weights.hpp"

#include <algorithm>
#include <cstddef>
#include <set>
#include <string>
#include <string_view>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "data/dataset_type.hpp"
#include "model/stretches.hpp"

namespace rondo::train {
namespace {

using Parameters = std::vector<Parameter>;

[[noreturn]] void refuse(const SafetensorsFile& file, const std::string& problem) {
  fail_on_file(file.path(), problem, "set model.weights to the weights of this model");
}

std::string text_of(const std::vector<std::int64_t>& shape) {
  return fmt::format("[{}]", fmt::join(shape, ", "));
}

const std::vector<std::int64_t>& whole_shape(const Parameter& parameter) {
  return parameter.whole.empty() ? parameter.shape : parameter.whole;
}

void copy_parts(const Parameters& part, std::span<const float> from, const Parameters& whole,
                std::span<float> into) {
  for (std::size_t i = 0; i < part.size(); ++i) {
    for_each_stretch(part[i], [&](std::size_t in_part, std::size_t in_whole, std::size_t size) {
      std::ranges::copy(from.subspan(part[i].offset + in_part, size),
                        into.begin() + static_cast<std::ptrdiff_t>(whole[i].offset + in_whole));
    });
  }
}

void take_parts(const Parameters& whole, std::span<const float> from, const Parameters& part,
                std::span<float> into) {
  for (std::size_t i = 0; i < part.size(); ++i) {
    for_each_stretch(part[i], [&](std::size_t in_part, std::size_t in_whole, std::size_t size) {
      std::ranges::copy(from.subspan(whole[i].offset + in_whole, size),
                        into.begin() + static_cast<std::ptrdiff_t>(part[i].offset + in_part));
    });
  }
}

void append(const Parameters& parameters, std::span<const float> values,
            std::vector<NamedTensor>& tensors) {
  for (const Parameter& parameter : parameters) {
    tensors.push_back({.name = parameter.name,
                       .shape = parameter.shape,
                       .values = values.subspan(parameter.offset, parameter.size())});
  }
}

const SafetensorsFile::Entry& entry_of(const SafetensorsFile& file, const Parameter& parameter) {
  const SafetensorsFile::Entry* entry = file.find(parameter.name);
  if (entry == nullptr) refuse(file, fmt::format("has no tensor \"{}\"", parameter.name));
  if (entry->shape != whole_shape(parameter)) {
    refuse(file, fmt::format("the tensor \"{}\" is {}, and the model's is {}", parameter.name,
                             text_of(entry->shape), text_of(whole_shape(parameter))));
  }
  return *entry;
}

void read_parts(const SafetensorsFile& file, const Parameters& parameters, std::span<float> into) {
  std::vector<float> whole;
  for (const Parameter& parameter : parameters) {
    const SafetensorsFile::Entry& entry = entry_of(file, parameter);
    whole.resize(entry.elements());
    file.read(entry, whole);
    for_each_stretch(parameter, [&](std::size_t in_part, std::size_t in_whole, std::size_t size) {
      std::ranges::copy(std::span(whole).subspan(in_whole, size),
                        into.begin() + static_cast<std::ptrdiff_t>(parameter.offset + in_part));
    });
  }
}

// PyTorch counts the batches that a batch norm has seen; nothing here depends on it.
bool counts_batches(std::string_view name) { return name.ends_with(".num_batches_tracked"); }

}  // namespace

void add_part(const ParameterLayout& part, std::span<const float> parameters,
              std::span<const float> statistics, const ParameterLayout& whole,
              ModelWeights& weights) {
  weights.parameters.resize(whole.parameter_count);
  weights.statistics.resize(whole.statistic_count);
  copy_parts(part.parameters, parameters, whole.parameters, weights.parameters);
  copy_parts(part.statistics, statistics, whole.statistics, weights.statistics);
}

void take_part(const ModelWeights& weights, const ParameterLayout& whole,
               const ParameterLayout& part, std::span<float> parameters,
               std::span<float> statistics) {
  take_parts(whole.parameters, weights.parameters, part.parameters, parameters);
  take_parts(whole.statistics, weights.statistics, part.statistics, statistics);
}

void save_weights(const std::filesystem::path& file, const Model& model, const Dataset& dataset,
                  const ModelWeights& weights) {
  const ParameterLayout layout = layout_of(model);
  std::vector<NamedTensor> tensors;
  append(layout.parameters, weights.parameters, tensors);
  append(layout.statistics, weights.statistics, tensors);
  const tensor::Shape& input = model.input;
  write_safetensors(file, tensors,
                    {{"format", "pt"},
                     {"model", model.name},
                     {"input", fmt::format("[{}, {}, {}]", input.h, input.w, input.c)},
                     {"classes", std::to_string(model.classes)},
                     {"data", dataset.name},
                     {"mean", fmt::format("[{}]", fmt::join(dataset.mean, ", "))},
                     {"stddev", fmt::format("[{}]", fmt::join(dataset.stddev, ", "))}});
}

void load_weights(const std::filesystem::path& file, const ParameterLayout& layout,
                  std::span<float> parameters, std::span<float> statistics) {
  const SafetensorsFile source(file);
  read_parts(source, layout.parameters, parameters);
  read_parts(source, layout.statistics, statistics);
  std::set<std::string_view> known;
  for (const Parameter& parameter : layout.parameters) known.insert(parameter.name);
  for (const Parameter& statistic : layout.statistics) known.insert(statistic.name);
  for (const SafetensorsFile::Entry& entry : source.entries()) {
    if (known.contains(entry.name) || counts_batches(entry.name)) continue;
    refuse(source, fmt::format("the tensor \"{}\" belongs to no layer of the model", entry.name));
  }
}

}  // namespace rondo::train
