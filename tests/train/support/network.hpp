#pragma once

// A model with its arrays and an executor, for tests that train a few steps.

#include <cstdint>
#include <memory_resource>
#include <span>
#include <string>
#include <vector>

#include <rondo/tensor/engine.hpp>
#include <rondo/train/executor.hpp>
#include <rondo/train/model.hpp>

namespace rondo::train::test {

/// Writes down what it is told: "ready 0", "final 0", "between".
class Recorder final : public StepObserver {
 public:
  void make_ready(std::size_t block) override { calls.push_back("ready " + std::to_string(block)); }
  void gradients_final(std::size_t block) override {
    calls.push_back("final " + std::to_string(block));
  }
  void between_layers() override { calls.emplace_back("between"); }

  std::vector<std::string> calls = {};
};

/// Does nothing, and allocates nothing.
class Silent final : public StepObserver {
 public:
  void make_ready(std::size_t /*block*/) override {}
  void gradients_final(std::size_t /*block*/) override {}
  void between_layers() override {}
};

/// Images and labels by a formula.
struct Samples {
  std::vector<float> images = {};
  std::vector<std::int32_t> labels = {};

  [[nodiscard]] Batch batch() const {
    return {static_cast<std::int64_t>(labels.size()), images, labels};
  }
  /// Samples [first, first + count).
  [[nodiscard]] Batch part(std::int64_t first, std::int64_t count) const;
};

[[nodiscard]] Samples make_samples(const Model& model, std::int64_t count);

/// Everything that a step needs; parameters as initialize() draws them.
class Network {
 public:
  Network(Model model_data, ExecutorOptions options, int threads = 1,
          std::pmr::memory_resource* memory = std::pmr::get_default_resource());

  tensor::Loss train(const Batch& batch) { return executor.train(batch, silent); }
  tensor::Loss evaluate(const Batch& batch) {
    return executor.evaluate(batch, parameters, statistics);
  }
  /// The part of `flat` that belongs to the parameter `name`.
  [[nodiscard]] std::span<float> parameter(const std::string& name, std::vector<float>& flat) const;

  Model model;
  ParameterLayout layout;
  std::vector<float> parameters;
  std::vector<float> gradients;
  std::vector<float> statistics;
  Silent silent = {};
  tensor::Engine engine;
  Executor executor;
};

/// The elements of a whole parameter that a rank with part `part` of it holds.
[[nodiscard]] std::vector<float> part_of_parameter(const Parameter& part,
                                                   std::span<const float> whole);

/// ||a - b|| / ||b||, in double.
[[nodiscard]] double relative_distance(std::span<const float> a, std::span<const float> b);
[[nodiscard]] double norm(std::span<const float> values);

/// The models of the zoo, but for deeper ones of a family, in which nothing is new, and for those
/// made for large images: they are slow. LargeModelsTest has the latter.
[[nodiscard]] std::vector<std::string> quick_models();

/// A network small enough for finite differences, with every kind of layer and both shortcuts.
[[nodiscard]] Model small_residual_model();

}  // namespace rondo::train::test
