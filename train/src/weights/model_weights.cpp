// The weights of a model in a file, by name: what a run leaves, and what another may begin with.
// Names and shapes are those of torchvision's state_dict, whatever grid the model was trained on.

#include "weights/model_weights.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <system_error>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include <rondo/tensor/elementwise.hpp>
#include <rondo/train/weights.hpp>

#include "config/key.hpp"
#include "data/dataset_type.hpp"
#include "model/names.hpp"
#include "model/stretches.hpp"

namespace rondo::train {
namespace {

using Parameters = std::vector<Parameter>;

[[noreturn]] void refuse_weights(const SafetensorsFile& file, const std::string& problem) {
  fail_on_file(
      file.path(), problem,
      "give the weights of this model, or let rondo train draw the layer anew by model.skip");
}

std::string text_of(const std::vector<std::int64_t>& shape) {
  return fmt::format("[{}]", fmt::join(shape, ", "));
}

const std::vector<std::int64_t>& whole_shape(const Parameter& parameter) {
  return parameter.whole.empty() ? parameter.shape : parameter.whole;
}

// A rank's slice of a parameter is stretches of the whole one (Parameter::first, whole): calls
// copy(begin in the values of `part`, begin in those of `whole`, size) for each.
template <typename Copy>
void for_each_copy(const Parameters& part, const Parameters& whole, const Copy& copy) {
  for (std::size_t i = 0; i < part.size(); ++i) {
    for_each_stretch(part[i], [&](std::size_t in_part, std::size_t in_whole, std::size_t size) {
      copy(part[i].offset + in_part, whole[i].offset + in_whole, size);
    });
  }
}

void copy_parts(const Parameters& part, std::span<const float> from, const Parameters& whole,
                std::span<float> into) {
  for_each_copy(part, whole, [&](std::size_t in_part, std::size_t in_whole, std::size_t size) {
    std::ranges::copy(from.subspan(in_part, size), into.subspan(in_whole, size).begin());
  });
}

void take_parts(const Parameters& whole, std::span<const float> from, const Parameters& part,
                std::span<float> into) {
  for_each_copy(part, whole, [&](std::size_t in_part, std::size_t in_whole, std::size_t size) {
    std::ranges::copy(from.subspan(in_whole, size), into.subspan(in_part, size).begin());
  });
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
  if (entry == nullptr) refuse_weights(file, fmt::format("has no tensor \"{}\"", parameter.name));
  // Shapes must be equal; only values are converted (from F16, BF16 or F64).
  if (entry->shape != whole_shape(parameter)) {
    refuse_weights(file,
                   fmt::format("the tensor \"{}\" is {}, and the model's is {}", parameter.name,
                               text_of(entry->shape), text_of(whole_shape(parameter))));
  }
  return *entry;
}

using Patterns = std::span<const std::string>;

bool matches_any(Patterns patterns, std::string_view name) {
  return std::ranges::any_of(patterns, [&](const auto& pattern) { return matches(pattern, name); });
}

// Files may hold them, but no model that has them sees anything.
[[noreturn]] void refuse_broken(const std::filesystem::path& source, const std::string& tensor) {
  fail_on_file(source, fmt::format("the tensor \"{}\" contains NaN or Inf", tensor),
               "give weights from before the training diverged; rondo inspect counts such values");
}

// Where this rank's part of a tensor of a file goes.
struct Destination {
  const Parameter* parameter = nullptr;
  std::span<float> values = {};  // of all parameters of its kind
};
using Destinations = std::map<std::string_view, Destination>;

void add_destinations(const Parameters& parameters, std::span<float> values, Patterns skip,
                      Destinations& into) {
  for (const Parameter& one : parameters) {
    if (!matches_any(skip, one.name)) into[one.name] = {&one, values};
  }
}

// A file that is damaged is refused as such, whatever its tensors contain.
void read_parts(const SafetensorsFile& file, const Destinations& destinations) {
  std::vector<float> whole;
  std::optional<std::string> broken;
  file.read_all([&](const SafetensorsFile::Entry& entry) {
    const auto found = destinations.find(entry.name);
    if (found == destinations.end()) return;
    whole.resize(entry.elements());
    file.read(entry, whole);
    if (!broken && !tensor::all_finite(whole)) broken = entry.name;
    const auto& [parameter, values] = found->second;
    for_each_stretch(*parameter, [&](std::size_t in_part, std::size_t in_whole, std::size_t size) {
      std::ranges::copy(std::span(whole).subspan(in_whole, size),
                        values.subspan(parameter->offset + in_part, size).begin());
    });
  });
  if (broken) refuse_broken(file.path(), *broken);
}

// PyTorch counts the batches that a batch norm has seen; nothing here depends on it.
bool counts_batches(std::string_view name) { return name.ends_with(".num_batches_tracked"); }

std::set<std::string_view> names_in(const ParameterLayout& layout) {
  std::set<std::string_view> names;
  for (const Parameter& parameter : layout.parameters) names.insert(parameter.name);
  for (const Parameter& statistic : layout.statistics) names.insert(statistic.name);
  return names;
}

// A pattern may also leave out what only the file has, such as a second classifier.
void check_patterns(const SafetensorsFile& file, const std::set<std::string_view>& known,
                    Patterns skip) {
  for (const std::string& pattern : skip) {
    const auto is_meant = [&](std::string_view name) { return matches(pattern, name); };
    if (std::ranges::any_of(known, is_meant) ||
        std::ranges::any_of(file.entries(), is_meant, &SafetensorsFile::Entry::name)) {
      continue;
    }
    refuse_key("model.skip",
               "\"{}\" matches no parameter of the model; rondo inspect {} lists names",
               printable(pattern), file.path().string());
  }
}

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

namespace {

constexpr const char* names_key = "class_names";

// Names of folders need not be UTF-8: what is not is mended.
std::string to_text(const std::vector<std::string>& names) {
  return nlohmann::json(names).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

// Nothing where it is not `count` names.
std::optional<std::vector<std::string>> names_in(const std::string& text, std::size_t count) {
  const auto json = nlohmann::json::parse(text, nullptr, false);
  const auto is_name = [](const nlohmann::json& name) { return name.is_string(); };
  if (!json.is_array() || json.size() != count || !std::ranges::all_of(json, is_name)) return {};
  return json.get<std::vector<std::string>>();
}

}  // namespace

void save_weights(const std::filesystem::path& file, const Model& model, const Dataset& dataset,
                  const ModelWeights& weights) {
  const ParameterLayout layout = layout_of(model);
  std::vector<NamedTensor> tensors;
  append(layout.parameters, weights.parameters, tensors);
  append(layout.statistics, weights.statistics, tensors);
  const tensor::Shape& input = model.input;
  // "pt" says, as files of PyTorch do, whose names these are; the other entries are ours, for
  // images_described_by().
  TensorMetadata metadata{{"format", "pt"},
                          {"model", model.name},
                          {"input", fmt::format("[{}, {}, {}]", input.h, input.w, input.c)},
                          {"classes", std::to_string(model.classes)},
                          {"data", dataset.name},
                          {"mean", fmt::format("[{}]", fmt::join(dataset.mean, ", "))},
                          {"stddev", fmt::format("[{}]", fmt::join(dataset.stddev, ", "))}};
  if (!dataset.class_names.empty()) metadata.emplace(names_key, to_text(dataset.class_names));
  metadata.emplace(values_checksum_key, checksum_of_values(tensors));
  write_safetensors(file, tensors, metadata);
}

namespace {

// "module." and the like, or several of them. A file of Rondo's own has the names of a model.
std::string shared_prefix(const SafetensorsFile& file) {
  if (file.entries().empty() || file.metadata().contains("model")) return {};
  std::string shared;
  for (bool grows = true; grows;) {
    grows = false;
    for (const char* part : {"module.", "_orig_mod.", "model."}) {
      const auto begins = [&](const SafetensorsFile::Entry& entry) {
        return entry.name.starts_with(shared + part);
      };
      if (!std::ranges::all_of(file.entries(), begins)) continue;
      shared += part;
      grows = true;
    }
  }
  return shared;
}

}  // namespace

std::string note_of_weights(const std::filesystem::path& file) {
  std::error_code ignored;
  if (std::filesystem::is_directory(file, ignored)) return {};
  const std::string prefix = shared_prefix(SafetensorsFile(file));
  if (prefix.empty()) return {};
  return fmt::format("weights {}: all names begin with \"{}\", which is left out", file.string(),
                     prefix);
}

namespace {

SafetensorsFile with_names_of(const ParameterLayout& layout, const SafetensorsFile& file) {
  const std::string prefix = shared_prefix(file);
  const auto begins = [&](const Parameter& parameter) {
    return parameter.name.starts_with(prefix);
  };
  return std::ranges::any_of(layout.parameters, begins) ? file : file.without_prefix(prefix);
}

void expect_names_and_shapes(const SafetensorsFile& source, const ParameterLayout& layout,
                             Patterns skip) {
  const std::set<std::string_view> known = names_in(layout);
  check_patterns(source, known, skip);
  for (const Parameters* parameters : {&layout.parameters, &layout.statistics}) {
    for (const Parameter& parameter : *parameters) {
      if (!matches_any(skip, parameter.name)) static_cast<void>(entry_of(source, parameter));
    }
  }
  // A tensor that no layer has is probably a sign of another model.
  for (const SafetensorsFile::Entry& entry : source.entries()) {
    if (known.contains(entry.name) || counts_batches(entry.name)) continue;
    if (matches_any(skip, entry.name)) continue;
    refuse_weights(source,
                   fmt::format("the tensor \"{}\" belongs to no layer of the model", entry.name));
  }
}

}  // namespace

void expect_weights(const SafetensorsFile& source, const ParameterLayout& layout, Patterns skip) {
  expect_names_and_shapes(with_names_of(layout, source), layout, skip);
}

void load_weights(const SafetensorsFile& file, const ParameterLayout& layout,
                  std::span<float> parameters, std::span<float> statistics, Patterns skip) {
  const SafetensorsFile source = with_names_of(layout, file);
  expect_names_and_shapes(source, layout, skip);
  Destinations destinations;
  add_destinations(layout.parameters, parameters, skip, destinations);
  add_destinations(layout.statistics, statistics, skip, destinations);
  read_parts(source, destinations);
}

void expect_finite(const std::filesystem::path& source, const ParameterLayout& layout,
                   const ModelWeights& weights) {
  const auto expect = [&](const Parameters& parameters, std::span<const float> values) {
    for (const Parameter& one : parameters) {
      if (tensor::all_finite(values.subspan(one.offset, one.size()))) continue;
      refuse_broken(source, one.name);
    }
  };
  expect(layout.parameters, weights.parameters);
  expect(layout.statistics, weights.statistics);
}

namespace {

// The numbers of "[32, 32, 3]", or of "10"; none when the text is something else.
std::vector<double> numbers_in(const std::string& text) {
  const auto json = nlohmann::json::parse(text, nullptr, false);
  if (json.is_number()) return {json.get<double>()};
  const bool numbers = json.is_array() && std::ranges::all_of(json, [](const auto& entry) {
                         return entry.is_number();
                       });
  return numbers ? json.get<std::vector<double>>() : std::vector<double>{};
}

constexpr double largest_key = 65536.0;  // as in the configuration

bool is_extent(double number) {
  return number >= 1.0 && number <= largest_key && number == std::floor(number);
}

std::vector<float> as_floats(const std::vector<double>& numbers) {
  std::vector<float> floats;
  for (const double number : numbers) floats.push_back(static_cast<float>(number));
  return floats;
}

}  // namespace

std::optional<Dataset> images_described_by(const SafetensorsFile& file) {
  const TensorMetadata& said = file.metadata();
  for (const char* name : {"data", "input", "classes", "mean", "stddev"}) {
    if (!said.contains(name)) return std::nullopt;
  }
  const auto numbers = [&](const char* name, std::size_t count, auto possible) {
    std::vector<double> values = numbers_in(said.at(name));
    if (values.size() == count && std::ranges::all_of(values, possible)) return values;
    fail_on_file(file.path(), fmt::format("its metadata says that {} is {}", name, said.at(name)),
                 "give a file as rondo export writes it");
  };
  const auto is_finite = [](double number) { return std::isfinite(static_cast<float>(number)); };
  const auto input = numbers("input", 3, is_extent);
  constexpr double most_pixels = 16384.0 * 16384.0;  // of what data.image_size may ask for
  if (input[0] * input[1] > most_pixels) {
    fail_on_file(file.path(), fmt::format("its metadata says that input is {}", said.at("input")),
                 "give a file as rondo export writes it");
  }
  const auto channels = static_cast<std::size_t>(input[2]);
  Dataset dataset{.name = said.at("data"),
                  .classes = static_cast<std::int64_t>(numbers("classes", 1, is_extent)[0])};
  dataset.mean = as_floats(numbers("mean", channels, is_finite));
  dataset.stddev = as_floats(numbers("stddev", channels, [&](double number) {
    return is_finite(number) && static_cast<float>(number) > 0.0F;
  }));
  if (const auto names = said.find(names_key); names != said.end()) {
    auto known = names_in(names->second, static_cast<std::size_t>(dataset.classes));
    if (!known) {
      fail_on_file(file.path(),
                   fmt::format("its metadata do not give {} names as class_names", dataset.classes),
                   "give a file as rondo export writes it");
    }
    dataset.class_names = *std::move(known);
  }
  dataset.training.shape = {0, static_cast<std::int64_t>(input[0]),
                            static_cast<std::int64_t>(input[1]),
                            static_cast<std::int64_t>(input[2])};
  return dataset;
}

}  // namespace rondo::train
