#pragma once

// The schemes whose promises are tested, and a rank that trains with one of them.

#include <algorithm>
#include <cstddef>
#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <rondo/sync/optimizer.hpp>
#include <rondo/sync/update_scheme.hpp>
#include <rondo/transport/communicator.hpp>
#include <rondo/transport/world.hpp>

#include "sync/arrays.hpp"
#include "sync/given.hpp"

namespace rondo::sync::test {

struct UnderTest {
  std::string name;
  Scheme (*make)(const Given& given);
  std::unique_ptr<Optimizer> (*make_optimizer)(std::size_t size) = [](std::size_t size) {
    return make_sgd(size, {.momentum = 0.5F, .weight_decay = 0.25F});
  };

  friend void PrintTo(const UnderTest& tested, std::ostream* stream) { *stream << tested.name; }
};

/// The schemes of the library, a warm-up before one of them, and a scheme from outside
/// (periodic_average.hpp).
const std::vector<UnderTest>& schemes_under_test();

/// One rank that trains by gradients that the test makes up.
class TrainingRun {
 public:
  explicit TrainingRun(const UnderTest& tested, transport::World& world,
                       const std::vector<std::size_t>& sizes = {50, 30, 60})
      : world_(world),
        pair_(world.communicator().split(world.rank() / 2)),
        arrays(world, sizes, 4) {
    std::ranges::fill(arrays.parameters, 1.0F);
    scheme =
        tested.make({arrays.replica(), tested.make_optimizer(arrays.parameters.size()), pair_});
  }

  [[nodiscard]] Step step() const {
    return {.index = done + optimizer_start,
            .local_samples = 1,
            .global_samples = static_cast<std::size_t>(world_.size()),
            .learning_rate = 0.1 / (1 + done),
            .optimizer_start = optimizer_start};
  }

  /// One iteration. Gradients depend on the parameters, the rank and the step.
  void iterate() {
    const auto rank = static_cast<float>(world_.rank());
    for (float& statistic : arrays.statistics) statistic = 0.9F * statistic + rank;
    test::iterate(
        *scheme, arrays, step(),
        [&](std::size_t i, float w) {
          if (i == 0) scheme->add_loss(8.0 / (1 + done) + rank);
          return 0.3F * w + 0.7F * static_cast<float>(done % 3) - rank +
                 0.01F * static_cast<float>(i);
        },
        rotation);
    ++done;
  }

  /// So many iterations, or of a scheme where ranks have a pace of their own, epochs.
  void train(int count) {
    for (int i = 0; i < count; ++i) {
      do {
        iterate();
      } while (scheme->pace() && !scheme->pace()->parked);
    }
    for (std::size_t layer = 0; layer < arrays.layers(); ++layer) scheme->make_ready(layer);
  }

  void go_on_from(const TrainingRun& other) {
    std::ranges::copy(other.arrays.parameters, arrays.parameters.begin());
    arrays.statistics = other.arrays.statistics;
    done = other.done;
    scheme->restore(other.scheme->save());
  }

  void expect_as(const TrainingRun& other) const {
    EXPECT_THAT(arrays.parameters, testing::ElementsAreArray(other.arrays.parameters));
    EXPECT_EQ(arrays.statistics, other.arrays.statistics);
  }

 private:
  transport::World& world_;
  transport::Communicator pair_;

 public:
  Arrays arrays;
  Scheme scheme;
  int done = 0;
  int optimizer_start = 0;
  std::size_t rotation = 0;  ///< of the order in which layers become final
};

}  // namespace rondo::sync::test
