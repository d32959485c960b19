// Which average is due after which step, and which periods and groups are refused.

#include "schemes/averaging.hpp"

#include <cstdint>
#include <functional>
#include <stdexcept>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <rondo/transport/communicator.hpp>
#include <rondo/transport/world.hpp>

#include "support/world.hpp"

namespace rondo::sync::averaging_schedule_test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using transport::Communicator;

/// For steps 1 to period - 1: the size of the group that averages, 0 for none.
std::vector<int> due(const AveragingSchedule& schedule) {
  std::vector<int> sizes;
  for (std::int64_t steps = 1; steps < schedule.period(); ++steps) {
    EXPECT_FALSE(schedule.round_ends_after(steps));
    const Communicator* group = schedule.group_due_after(steps);
    sizes.push_back(group == nullptr ? 0 : group->size());
  }
  EXPECT_TRUE(schedule.round_ends_after(schedule.period()));
  return sizes;
}

TEST(AveragingScheduleTest, DoesTheSlowestOfTheAveragesThatAreDue) {
  rondo::test::World{4}.run([](transport::World& world) {
    Communicator pair = world.communicator().split(world.rank() / 2);
    Communicator all = world.communicator().split(0);

    const AveragingSchedule schedule("test", 12, {{2, &pair}, {6, &all}}, world.communicator());

    EXPECT_THAT(due(schedule), ElementsAre(0, 2, 0, 2, 0, 4, 0, 2, 0, 2, 0));
  });
}

TEST(AveragingScheduleTest, SkipsAGroupOfOneRank) {
  rondo::test::World{2}.run([](transport::World& world) {
    Communicator alone = world.communicator().split(world.rank());

    const AveragingSchedule schedule("test", 4, {{1, &alone}}, world.communicator());

    EXPECT_THAT(due(schedule), ElementsAre(0, 0, 0));
  });
}

TEST(AveragingScheduleTest, HasNothingDueWithoutLevels) {
  rondo::test::World{2}.run([](transport::World& world) {
    EXPECT_THAT(due({"test", 3, {}, world.communicator()}), ElementsAre(0, 0));
  });
}

class AveragingScheduleRefusalTest : public testing::Test {
 protected:
  using Levels = std::function<std::vector<AveragingLevel>(Communicator& pair, Communicator& all)>;

  /// Why a schedule of these levels is refused, on 4 ranks.
  static std::string reason(std::int64_t period, const Levels& levels) {
    std::string reason = "accepted";
    rondo::test::World{4}.run([&](transport::World& world) {
      Communicator pair = world.communicator().split(world.rank() / 2);
      Communicator all = world.communicator().split(0);
      try {
        const AveragingSchedule schedule("test", period, levels(pair, all), pair);
      } catch (const std::invalid_argument& error) {
        if (world.rank() == 0) reason = error.what();
      }
    });
    return reason;
  }
};

TEST_F(AveragingScheduleRefusalTest, PeriodsThatAreNoMultiples) {
  EXPECT_THAT(reason(9, [](auto& pair, auto&) { return std::vector{AveragingLevel{4, &pair}}; }),
              HasSubstr("test: the global period is 9, which is no multiple of the faster level's "
                        "4"));
  EXPECT_THAT(reason(12,
                     [](auto& pair, auto&) {
                       return std::vector{AveragingLevel{2, &pair}, AveragingLevel{3, &pair}};
                     }),
              HasSubstr("test: level 1's period is 3, which is no multiple"));
}

TEST_F(AveragingScheduleRefusalTest, PeriodsBelowOne) {
  EXPECT_THAT(reason(0, [](auto&, auto&) { return std::vector<AveragingLevel>{}; }),
              HasSubstr("the global period is 0; it is at least 1"));
  EXPECT_THAT(reason(4, [](auto& pair, auto&) { return std::vector{AveragingLevel{-2, &pair}}; }),
              HasSubstr("level 0's period is -2"));
}

TEST_F(AveragingScheduleRefusalTest, GroupsThatDoNotFitIntoSlowerOnes) {
  EXPECT_THAT(reason(4,
                     [](auto& pair, auto& all) {
                       return std::vector{AveragingLevel{2, &all}, AveragingLevel{4, &pair}};
                     }),
              HasSubstr("level 0 has a group of 4 ranks, which does not fit into the next slower "
                        "one of 2"));
  EXPECT_THAT(reason(4, [](auto&, auto& all) { return std::vector{AveragingLevel{2, &all}}; }),
              HasSubstr("level 0 has a group of 4 ranks"));
}

TEST_F(AveragingScheduleRefusalTest, LevelsWithoutAGroup) {
  EXPECT_THAT(reason(4,
                     [](auto& pair, auto&) {
                       return std::vector{AveragingLevel{2, &pair}, AveragingLevel{4, nullptr}};
                     }),
              HasSubstr("level 1 has no group"));
}

}  // namespace
}  // namespace rondo::sync::averaging_schedule_test
