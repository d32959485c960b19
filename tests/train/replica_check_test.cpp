// Ranks that should hold the same parameters are compared by hash.

#include "trainer/replica_check.hpp"

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
    World{ranks}.run([](transport::World& world) {
      EXPECT_NO_THROW(
          check_replicas(world.communicator(), world.rank(), ParameterHash{1, 2, 3}, 1));
    });
  }
}

TEST(ReplicaCheckTest, NamesTheRanksThatDiffer) {
  World{4}.run([](transport::World& world) {
    ParameterHash mine{1, 2, 3};
    if (world.rank() == 1 || world.rank() == 3) mine.back() = 9;

    EXPECT_THAT([&] { check_replicas(world.communicator(), world.rank(), mine, 7); },
                ThrowsMessage<NumericError>(
                    AllOf(HasSubstr("epoch 7"), HasSubstr("rank(s) 1, 3 differ from rank 0"))));
  });
}

}  // namespace
}  // namespace rondo::train::replica_check_test
