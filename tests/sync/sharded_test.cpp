// Synchronous SGD with a divided optimizer, over ranks that are threads: it does what synchronous
// does, on shares.

#include <algorithm>
#include <array>
#include <cstddef>
#include <memory>
#include <ostream>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <rondo/sync/optimizer.hpp>
#include <rondo/sync/sharded.hpp>
#include <rondo/sync/synchronous.hpp>
#include <rondo/transport/communicator.hpp>
#include <rondo/transport/element.hpp>
#include <rondo/transport/world.hpp>

#include "support/error_text.hpp"
#include "support/world.hpp"
#include "sync/arrays.hpp"

namespace rondo::sync::sharded_test {
namespace {

using rondo::test::Backend;
using rondo::test::World;
using test::Arrays;
using test::step_of;
using testing::ElementsAreArray;
using testing::HasSubstr;

constexpr int steps = 5;
// 2,000 elements are cut unevenly by 3 ranks; 1 and 3 leave some without a share. The last layer,
// whose bucket is the first, has no parameters.
const std::vector<std::size_t> layer_sizes{40, 3, 0, 129, 1, 2000, 0};
constexpr SynchronousOptions small_buckets{.bucket_bytes = 512, .last_bucket_bytes = 64};

using Make = std::unique_ptr<UpdateScheme> (*)(Replica, std::shared_ptr<Optimizer>,
                                               const SynchronousOptions&);

std::unique_ptr<Optimizer> adam(std::size_t size) {
  return make_adamw(size, {.weight_decay = 0.25, .undecayed = {{40, 3}}});
}

std::unique_ptr<Optimizer> sgd(std::size_t size) {
  return make_sgd(size, {.momentum = 0.5F, .weight_decay = 0.25F});
}

struct Case {
  std::string name;
  std::unique_ptr<Optimizer> (*make_optimizer)(std::size_t size);
  SynchronousOptions options;

  friend void PrintTo(const Case& tested, std::ostream* stream) { *stream << tested.name; }
};

/// Trains with gradients that are small whole numbers, whose sums are exact in any order, and whose
/// squares are, too.
std::vector<float> train(transport::World& world, Make make, const Case& tested) {
  Arrays arrays(world, layer_sizes);
  std::ranges::fill(arrays.parameters, 1.0F);
  const auto scheme =
      make(arrays.replica(), tested.make_optimizer(arrays.parameters.size()), tested.options);
  for (int step = 0; step < steps; ++step) {
    test::iterate(*scheme, arrays, step_of(world, step), [&](std::size_t i, float) {
      return static_cast<float>((world.rank() * 7 + step + static_cast<int>(i)) % 13 - 6);
    });
  }
  scheme->flush();
  return {arrays.parameters.begin(), arrays.parameters.end()};
}

class ShardedTest : public testing::TestWithParam<Case> {};

TEST_P(ShardedTest, EqualsSynchronousBitForBitWhereSumsAreExact) {
  for (const Backend backend : {Backend::shm, Backend::shm_nodes, Backend::hierarchy}) {
    for (const int ranks : {1, 2, 3, 4}) {
      World{backend, ranks}.run([](transport::World& world) {
        EXPECT_THAT(train(world, make_sharded, GetParam()),
                    ElementsAreArray(train(world, make_synchronous, GetParam())));
      });
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Cases, ShardedTest,
    testing::Values(Case{"Sgd", sgd, small_buckets}, Case{"Adam", adam, small_buckets},
                    Case{"OneBucket", adam, {}},
                    Case{"Clipped", sgd, {.bucket_bytes = 512, .clip_norm = 3.0}},
                    Case{"ClippedBf16",
                         adam,
                         {.bucket_bytes = 2048,
                          .clip_norm = 3.0,
                          .gradient_type = transport::ElementType::bf16}}),
    [](const auto& tested) { return tested.param.name; });

Step first_step(const transport::World& world) { return step_of(world, 0, {.rate = 0.5}); }

TEST(ShardedSchemeTest, ARankKeepsTheStateOfItsShareAlone) {
  World{4}.run([](transport::World& world) {
    Arrays arrays(world, {64, 1000});
    const std::shared_ptr<Optimizer> optimizer = make_adam(1064);
    const auto scheme = make_sharded(arrays.replica(), optimizer, small_buckets);

    test::iterate(*scheme, arrays, first_step(world), [](std::size_t, float) { return 1.0F; });

    // Shares of 16 and of 256 elements; the last rank has what is left of the longer bucket.
    std::vector<float> mine(1064, 0.0F);
    const auto rank = static_cast<std::size_t>(world.rank());
    std::ranges::fill(std::span(mine).subspan(16 * rank, 16), 1.0F);
    std::ranges::fill(std::span(mine).subspan(64 + 256 * rank, rank == 3 ? 232 : 256), 1.0F);
    for (std::size_t i = 0; i < optimizer->state().size(); ++i) {
      ASSERT_EQ(optimizer->state()[i] != 0.0F, mine[i % 1064] == 1.0F) << i;
    }
  });
}

TEST(ShardedSchemeTest, MakeReadyBringsTheOthersShares) {
  World{2}.run([](transport::World& world) {
    Arrays arrays(world, {32, 1024});
    const auto scheme = make_sharded(arrays.replica(), make_sgd(1056, {}), small_buckets);
    test::iterate(*scheme, arrays, first_step(world), [](std::size_t, float) { return 1.0F; });

    scheme->make_ready(0);
    EXPECT_THAT(std::span(arrays.parameters).first(32), testing::Each(-0.5F));
    scheme->make_ready(1);
    EXPECT_THAT(arrays.parameters, testing::Each(-0.5F));
    EXPECT_THROW(scheme->make_ready(2), std::exception);
  });
}

// A rank that never asks for a layer still trains with all of it.
TEST(ShardedSchemeTest, TheNextIterationWaitsForWhatNobodyHasAskedFor) {
  World{3}.run([](transport::World& world) {
    Arrays arrays(world, {32, 1024});
    const auto scheme = make_sharded(arrays.replica(), make_sgd(1056, {.momentum = 0.0F}));
    for (int step = 0; step < 4; ++step) {
      scheme->begin(first_step(world));
      std::ranges::fill(arrays.gradients, 1.0F);
      scheme->gradients_final(1);
      scheme->gradients_final(0);
      scheme->finish();
    }
    scheme->flush();

    EXPECT_THAT(arrays.parameters, testing::Each(-2.0F));
  });
}

// Shares of both ranks are as long.
TEST(ShardedSchemeTest, RefusesTheStateOfAnotherRank) {
  std::array<std::vector<std::byte>, 2> states;
  World{2}.run([&](transport::World& world) {
    Arrays arrays(world, {64, 64});
    states.at(static_cast<std::size_t>(world.rank())) =
        make_sharded(arrays.replica(), make_adam(128))->save();
  });
  World{2}.run([&](transport::World& world) {
    Arrays arrays(world, {64, 64});
    const auto scheme = make_sharded(arrays.replica(), make_adam(128));
    const auto rank = static_cast<std::size_t>(world.rank());
    EXPECT_NO_THROW(scheme->restore(states.at(rank)));
    EXPECT_THAT(rondo::test::error_text<std::invalid_argument>(
                    [&] { scheme->restore(states.at(1 - rank)); }),
                HasSubstr("but this is rank"));
  });
}

// What is still gathered is of the run that ends there.
TEST(ShardedSchemeTest, ARestoredSchemeKeepsTheParametersThatWereGivenBack) {
  World{Backend::shm_nodes, 2}.run([](transport::World& world) {
    Arrays arrays(world, {32, 1024});
    const auto scheme = make_sharded(arrays.replica(), make_sgd(1056, {}), small_buckets);
    const auto iterate = [&] {
      test::iterate(*scheme, arrays, first_step(world), [](std::size_t, float) { return 1.0F; });
    };
    iterate();
    scheme->flush();
    const std::vector<float> kept(arrays.parameters.begin(), arrays.parameters.end());
    const std::vector<std::byte> state = scheme->save();
    iterate();
    scheme->restore(state);
    std::ranges::copy(kept, arrays.parameters.begin());
    scheme->flush();
    EXPECT_THAT(arrays.parameters, ElementsAreArray(kept));
  });
}

TEST(ShardedSchemeTest, RefusesTheStateOfAnotherNumberOfRanks) {
  std::vector<std::byte> of_one;
  World{1}.run([&](transport::World& world) {
    Arrays arrays(world, {64, 16});
    of_one = make_sharded(arrays.replica(), sgd(80))->save();
  });
  World{2}.run([&](transport::World& world) {
    Arrays arrays(world, {64, 16});
    const auto scheme = make_sharded(arrays.replica(), sgd(80));

    EXPECT_THROW(scheme->restore(of_one), std::invalid_argument);
  });
}

}  // namespace
}  // namespace rondo::sync::sharded_test
