#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <memory_resource>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <rondo/sync/replica.hpp>
#include <rondo/sync/update_scheme.hpp>
#include <rondo/transport/world.hpp>

namespace rondo::sync::test {

/// One rank's arrays in its World's arena, zeroed, and the Replica that they make: layers of the
/// given sizes, each reduced over the whole World.
class Arrays {
 public:
  Arrays(transport::World& world, const std::vector<std::size_t>& layer_sizes,
         std::size_t statistic_count = 0)
      : parameters(total(layer_sizes), 0.0F, &world.arena()),
        gradients(parameters.size(), 0.0F, &world.arena()),
        statistics(statistic_count, 0.0F),
        world_(world),
        layer_sizes_(layer_sizes) {}

  [[nodiscard]] Replica replica() {
    Replica result{&world_, parameters, gradients, statistics, {}};
    std::size_t offset = 0;
    for (const std::size_t size : layer_sizes_) {
      const std::string name = "layer" + std::to_string(result.layers.size());
      result.layers.push_back(
          {name, offset, size, {nullptr, &world_.communicator(), &world_.communicator()}});
      offset += size;
    }
    return result;
  }

  [[nodiscard]] std::size_t layers() const noexcept { return layer_sizes_.size(); }

  std::pmr::vector<float> parameters;
  std::pmr::vector<float> gradients;
  std::vector<float> statistics;

 private:
  static std::size_t total(const std::vector<std::size_t>& sizes) {
    std::size_t sum = 0;
    for (const std::size_t size : sizes) sum += size;
    return sum;
  }

  transport::World& world_;
  std::vector<std::size_t> layer_sizes_;
};

/// The values that the steps of a test share.
struct StepOptions {
  std::size_t samples = 1;  ///< of each rank
  double rate = 0.125;
};

/// Step `index` of a training in which all ranks have equally many samples.
inline Step step_of(const transport::World& world, std::int64_t index,
                    const StepOptions& options = {}) {
  return {.index = index,
          .local_samples = options.samples,
          .global_samples = options.samples * static_cast<std::size_t>(world.size()),
          .learning_rate = options.rate};
}

/// A gradient that differs between ranks, steps and elements. It is a whole number from -4 to 3, so
/// that sums over 1, 2 or 4 ranks and products with a power of two are exact.
inline float small_gradient(int rank, int step, std::size_t element = 0) {
  return static_cast<float>((rank * 5 + step * 3 + static_cast<int>(element)) % 8 - 4);
}

/// One iteration of `scheme`, where gradient(element, parameter) is the sum of the gradients of
/// this rank's samples.
template <typename Gradient>
void iterate(UpdateScheme& scheme, Arrays& arrays, const Step& step, Gradient gradient) {
  scheme.begin(step);
  for (std::size_t layer = 0; layer < arrays.layers(); ++layer) scheme.make_ready(layer);
  for (std::size_t i = 0; i < arrays.gradients.size(); ++i) {
    arrays.gradients[i] = gradient(i, arrays.parameters[i]);
  }
  for (std::size_t layer = arrays.layers(); layer-- > 0;) scheme.gradients_final(layer);
  scheme.finish();
}

/// Trains 1, 2, ... and 11 steps, each time anew with the scheme that make(replica) returns, and
/// expects each time that a copy for evaluation holds what flush() leaves after it. Step
/// `flushed_before` follows a flush.
template <typename Make>
void expect_evaluation_as_flush(transport::World& world, const std::vector<std::size_t>& layers,
                                Make make, int flushed_before = -1) {
  for (int steps = 1; steps < 12; ++steps) {
    Arrays arrays(world, layers, 2);
    const std::unique_ptr<UpdateScheme> scheme = make(arrays.replica());
    for (int index = 0; index < steps; ++index) {
      if (index == flushed_before) scheme->flush();
      arrays.statistics[0] += 0.3F * static_cast<float>(world.rank());
      iterate(*scheme, arrays, step_of(world, index), [&](std::size_t i, float w) {
        return 0.61F * w + 0.37F * small_gradient(world.rank(), index, i);
      });
    }
    std::vector<float> parameters(arrays.parameters.size());
    std::vector<float> statistics(arrays.statistics.size());
    scheme->copy_for_evaluation(parameters, statistics);
    scheme->flush();
    EXPECT_THAT(arrays.parameters, testing::ElementsAreArray(parameters)) << steps;
    EXPECT_EQ(arrays.statistics, statistics) << steps;
  }
}

}  // namespace rondo::sync::test
