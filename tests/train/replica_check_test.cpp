// Ranks that should hold the same parameters are compared by hash.

#include "trainer/agreement.hpp"

#include <cstdint>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <rondo/train/trainer.hpp>
#include <rondo/transport/world.hpp>

#include "support/world.hpp"

namespace rondo::train::replica_check_test {
namespace {

using rondo::test::World;
using testing::AllOf;
using testing::HasSubstr;
using testing::ThrowsMessage;

TEST(ReplicaCheckTest, EqualRanksPass) {
  for (const int ranks : {1, 2, 3}) {
    World{ranks}.run([=](transport::World& world) {
      EXPECT_NO_THROW(
          check_replicas(world.communicator(), {.pc = ranks}, ParameterHash{1, 2, 3}, 1));
    });
  }
}

TEST(ReplicaCheckTest, NamesTheRanksThatDiffer) {
  World{4}.run([](transport::World& world) {
    ParameterHash mine{1, 2, 3};
    if (world.rank() == 1 || world.rank() == 3) mine.back() = 9;

    EXPECT_THAT([&] { check_replicas(world.communicator(), {.pc = 4}, mine, 7); },
                ThrowsMessage<NumericError>(
                    AllOf(HasSubstr("epoch 7"), HasSubstr("rank(s) 1, 3 differ from rank 0"))));
  });
}

TEST(ReplicaCheckTest, RanksOfOtherPositionsHoldOtherParameters) {
  World{4}.run([](transport::World& world) {
    const ParameterHash mine{static_cast<std::uint8_t>(world.rank() % 2)};

    EXPECT_NO_THROW(check_replicas(world.communicator(), {.pr = 2, .pc = 2}, mine, 1));
  });
}

TEST(ReplicaCheckTest, ADifferenceInOnePositionIsThrownInAll) {
  World{6}.run([](transport::World& world) {
    ParameterHash mine{static_cast<std::uint8_t>(world.rank() % 2)};
    if (world.rank() == 5) mine.back() = 9;

    EXPECT_THAT([&] { check_replicas(world.communicator(), {.pr = 2, .pc = 3}, mine, 1); },
                ThrowsMessage<NumericError>(HasSubstr(": rank(s) 5 differ from rank 1;")));
  });
}

}  // namespace
}  // namespace rondo::train::replica_check_test
