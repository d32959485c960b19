#include "train/support/network.hpp"

#include <cmath>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace rondo::train::test {

Samples make_samples(const Model& model, std::int64_t count) {
  Samples samples;
  const std::int64_t elements = count * model.input.image();
  for (std::int64_t i = 0; i < elements; ++i) {
    const double angle = 0.05 * static_cast<double>(i) +
                         0.001 * static_cast<double>(i % 101) * static_cast<double>(i % 7);
    samples.images.push_back(static_cast<float>(std::sin(angle)));
  }
  for (std::int64_t i = 0; i < count; ++i) {
    samples.labels.push_back(static_cast<std::int32_t>((3 * i + 1) % model.classes));
  }
  return samples;
}

Batch Samples::part(std::int64_t first, std::int64_t count) const {
  const std::size_t image = images.size() / labels.size();
  const auto from = static_cast<std::size_t>(first);
  const auto samples = static_cast<std::size_t>(count);
  return {count, std::span(images).subspan(from * image, samples * image),
          std::span(labels).subspan(from, samples)};
}

Network::Network(Model model_data, ExecutorOptions options, int threads,
                 std::pmr::memory_resource* memory)
    : model(std::move(model_data)),
      layout(layout_of(model)),
      parameters(layout.parameter_count),
      gradients(layout.parameter_count),
      statistics(layout.statistic_count),
      engine(threads, memory),
      executor(engine, model, {parameters, gradients, statistics}, options) {
  initialize(layout, 1, parameters, statistics);
}

std::span<float> Network::parameter(const std::string& name, std::vector<float>& flat) const {
  for (const Parameter& entry : layout.parameters) {
    if (entry.name == name) return std::span(flat).subspan(entry.offset, entry.size());
  }
  throw std::out_of_range("no parameter " + name);
}

std::vector<float> part_of_parameter(const Parameter& part, std::span<const float> whole) {
  const bool cut = !part.whole.empty();
  const std::vector<std::int64_t>& extents = cut ? part.whole : part.shape;
  std::vector<float> elements;
  for (std::size_t i = 0; i < part.size(); ++i) {
    std::size_t left = i;
    std::size_t place = 0;
    std::size_t stride = 1;
    for (std::size_t d = extents.size(); d-- > 0;) {
      const auto extent = static_cast<std::size_t>(part.shape[d]);
      const std::size_t first = cut ? static_cast<std::size_t>(part.first[d]) : 0;
      place += (left % extent + first) * stride;
      left /= extent;
      stride *= static_cast<std::size_t>(extents[d]);
    }
    elements.push_back(whole[place]);
  }
  return elements;
}

double norm(std::span<const float> values) {
  double sum = 0.0;
  for (const float value : values) sum += static_cast<double>(value) * static_cast<double>(value);
  return std::sqrt(sum);
}

double relative_distance(std::span<const float> a, std::span<const float> b) {
  double sum = 0.0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const double difference = static_cast<double>(a[i]) - static_cast<double>(b[i]);
    sum += difference * difference;
  }
  return std::sqrt(sum) / norm(b);
}

std::vector<std::string> quick_models() {
  std::vector<std::string> names = model_names();
  std::erase_if(names, [](const std::string& name) {
    const bool deep = name == "resnet32" || name.ends_with("resnet56") ||
                      name.ends_with("resnet110") || name == "densenet40_12";
    const bool large = make_model(name).input.h > 32;
    return deep || large;
  });
  return names;
}

Model small_residual_model() {
  Model model{.name = "small", .input = {1, 6, 6, 2}, .classes = 3};
  const auto none = tensor::Activation::none;
  model.layers = {
      {"conv1", ConvolutionLayer{.filters = 4, .bias = true}, {0}},
      {"bn1", BatchNormLayer{.activation = none}, {1}},
      {"conv2", ConvolutionLayer{.filters = 4}, {2}},
      {"bn2", BatchNormLayer{.activation = none, .residual = true}, {3, 2}},
      {"downsample.0", ConvolutionLayer{.filters = 8, .kernel = 1, .stride = 2, .padding = 0}, {4}},
      {"downsample.1", BatchNormLayer{.activation = none}, {5}},
      {"conv3", ConvolutionLayer{.filters = 8, .stride = 2}, {4}},
      {"bn3", BatchNormLayer{.activation = none, .residual = true}, {7, 6}},
      {"pool", GlobalAveragePoolingLayer{}, {8}},
      {"fc", FullyConnectedLayer{.outputs = 3}, {9}},
  };
  return model;
}

}  // namespace rondo::train::test
