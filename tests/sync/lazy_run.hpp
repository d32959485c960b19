#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <random>
#include <utility>
#include <vector>

#include <rondo/sync/lazy.hpp>
#include <rondo/sync/optimizer.hpp>
#include <rondo/transport/world.hpp>

#include "sync/arrays.hpp"

namespace rondo::sync::test {

/// One rank that trains lazily by gradients that the test makes up.
class LazyRun {
 public:
  /// Layers of `sizes`, updated by SGD, one sample per rank and step.
  LazyRun(transport::World& world, const std::vector<std::size_t>& sizes, LazyOptions options,
          const SgdOptions& sgd = {.momentum = 0.5F, .weight_decay = 0.25F})
      : arrays(world, sizes), global_(static_cast<std::size_t>(world.size())) {
    options.on_window = [this](const LazyWindow& window) { windows.push_back(window); };
    windows.reserve(1000);
    scheme =
        make_lazy(arrays.replica(), make_sgd(arrays.parameters.size(), sgd), std::move(options));
  }

  /// One iteration; `gradient` is asked for every element.
  void step(const std::function<float(std::size_t element)>& gradient, double rate = 0.125) {
    scheme->begin(
        {.index = index_++, .local_samples = 1, .global_samples = global_, .learning_rate = rate});
    for (std::size_t layer = 0; layer < arrays.layers(); ++layer) scheme->make_ready(layer);
    for (std::size_t i = 0; i < arrays.gradients.size(); ++i) arrays.gradients[i] = gradient(i);
    for (std::size_t layer = arrays.layers(); layer-- > 0;) scheme->gradients_final(layer);
    scheme->finish();
  }

  /// One iteration with the same gradient everywhere.
  void constant_step(float gradient) {
    step([gradient](std::size_t) { return gradient; });
  }

  /// One iteration of noise, of this rank's own.
  void noisy_step(std::mt19937& generator) {
    std::normal_distribution<float> normal(0.1F);
    step([&](std::size_t) { return normal(generator); });
  }

  /// The intervals after the windows so far.
  [[nodiscard]] std::vector<std::int64_t> intervals() const {
    std::vector<std::int64_t> result;
    for (const LazyWindow& window : windows) result.push_back(window.interval);
    return result;
  }

  Arrays arrays;
  std::unique_ptr<UpdateScheme> scheme;
  std::vector<LazyWindow> windows;

 private:
  std::size_t global_;
  std::int64_t index_ = 0;
};

}  // namespace rondo::sync::test
