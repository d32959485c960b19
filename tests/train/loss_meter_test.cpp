// The training loss over ranks, and what happens when it is no longer a number.

#include "trainer/meters.hpp"

#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <rondo/train/trainer.hpp>
#include <rondo/transport/world.hpp>

#include "support/world.hpp"

namespace rondo::train::loss_meter_test {
namespace {

using rondo::test::World;
using testing::HasSubstr;
using testing::ThrowsMessage;

TEST(LossMeterTest, AddsUpAllRanksSinceTheLastLook) {
  World{3}.run([](transport::World& world) {
    LossMeter meter(world);
    meter.start();
    meter.add(1, {.sum = 1.0 + world.rank(), .correct = 1}, 2);
    const LossSums first = meter.reduce();
    meter.add(2, {.sum = 10.0, .correct = 2}, 4);

    const LossSums second = meter.reduce();

    EXPECT_EQ(first.loss, 6.0);
    EXPECT_EQ(first.accuracy(), 50.0);
    EXPECT_EQ(second.loss, 30.0);
    EXPECT_EQ(second.mean_loss(), 2.5);
    EXPECT_EQ(meter.total().loss, 36.0);
    EXPECT_EQ(meter.total().samples, 18.0);
    EXPECT_EQ(meter.own().loss, 11.0 + world.rank());
  });
}

TEST(LossMeterTest, ANewEpochBeginsAtZero) {
  World{1}.run([](transport::World& world) {
    LossMeter meter(world);
    meter.add(1, {.sum = 5.0, .correct = 0}, 1);
    meter.start();

    EXPECT_EQ(meter.reduce().loss, 0.0);
    EXPECT_EQ(meter.total().samples, 0.0);
    EXPECT_EQ(meter.total().mean_loss(), 0.0);
  });
}

TEST(LossMeterTest, NamesTheFirstBadStepOnEveryRank) {
  for (const double bad :
       {std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity(),
        -std::numeric_limits<double>::infinity()}) {
    World{3}.run([bad](transport::World& world) {
      LossMeter meter(world);
      meter.start();
      for (std::int64_t step = 1; step <= 9; ++step) {
        const bool broken = step >= 7 - world.rank();  // first on rank 2, in step 5
        meter.add(step, {.sum = broken ? bad : 1.0, .correct = 0}, 1);
      }

      EXPECT_THAT([&] { meter.reduce(); }, ThrowsMessage<NumericError>(HasSubstr("in step 5;")));
    });
  }
}

}  // namespace
}  // namespace rondo::train::loss_meter_test
