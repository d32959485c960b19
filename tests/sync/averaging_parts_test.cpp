// Which average is due after which step, and which periods and groups are refused.

#include <cstdint>
#include <stdexcept>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <rondo/transport/communicator.hpp>
#include <rondo/transport/world.hpp>

#include "schemes/averaging.hpp"
#include "schemes/fragment.hpp"
#include "support/error_text.hpp"
#include "support/world.hpp"

namespace rondo::sync::averaging_parts_test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using transport::Communicator;

/// For steps 1 to period - 1: the size of the group that averages, 0 for none.
std::vector<int> due(const AveragingSchedule& schedule) {
  std::vector<int> sizes;
  for (std::int64_t steps = 1; steps < schedule.period(); ++steps) {
    const Communicator* group = schedule.group_due_after(steps);
    sizes.push_back(group == nullptr ? 0 : group->size());
  }
  return sizes;
}

// The last layer is split unevenly over two ranks, which hold the others whole.
TEST(FragmentsTest, RanksOfAReplicaCutAlike) {
  const std::vector<std::uint64_t> whole = {200, 20, 20, 202};
  for (const std::size_t own : {100U, 102U}) {
    const std::vector<Layer> layers = {{.offset = 0, .size = 100},
                                       {.offset = 100, .size = 10},
                                       {.offset = 110, .size = 10},
                                       {.offset = 120, .size = own}};
    const std::vector<FragmentRange> ranges = cut_into_fragments(layers, whole, 2);
    ASSERT_EQ(ranges.size(), 2U);
    EXPECT_EQ(ranges[0].size, 120U);
    EXPECT_EQ(ranges[1].offset, 120U);
    EXPECT_EQ(ranges[1].size, own);
  }
}

TEST(AveragingScheduleTest, DoesTheSlowestOfTheAveragesThatAreDueAndNoneOfOneRank) {
  rondo::test::World{4}.run([](transport::World& world) {
    Communicator alone = world.communicator().split(world.rank());
    Communicator pair = world.communicator().split(world.rank() / 2);
    Communicator all = world.communicator().split(0);

    EXPECT_THAT(due({"test", 12, {{2, &pair}, {6, &all}}, world.communicator()}),
                ElementsAre(0, 2, 0, 2, 0, 4, 0, 2, 0, 2, 0));
    EXPECT_THAT(due({"test", 4, {{1, &alone}}, world.communicator()}), ElementsAre(0, 0, 0));
    EXPECT_THAT(due({"test", 3, {}, world.communicator()}), ElementsAre(0, 0));
  });
}

struct Refused {
  std::int64_t period;
  std::vector<AveragingLevel> (*levels)(Communicator& pair, Communicator& all);
  const char* reason;
};

TEST(AveragingScheduleTest, RefusesPeriodsAndGroupsThatDoNotFit) {
  using Levels = std::vector<AveragingLevel>;
  const std::vector<Refused> table = {
      {9, [](auto& pair, auto&) { return Levels{{4, &pair}}; },
       "test: the global period is 9, which is no multiple of the faster level's 4"},
      {12, [](auto& pair, auto&) { return Levels{{2, &pair}, {3, &pair}}; },
       "test: level 1's period is 3, which is no multiple"},
      {0, [](auto&, auto&) { return Levels{}; }, "the global period is 0; it is at least 1"},
      {4, [](auto& pair, auto&) { return Levels{{-2, &pair}}; }, "level 0's period is -2"},
      {4, [](auto& pair, auto& all) { return Levels{{2, &all}, {4, &pair}}; },
       "level 0 has a group of 4 ranks, which does not fit into the next slower one of 2"},
      {4, [](auto&, auto& all) { return Levels{{2, &all}}; }, "level 0 has a group of 4 ranks"},
      {4, [](auto& pair, auto&) { return Levels{{2, &pair}, {4, nullptr}}; },
       "level 1 has no group"}};
  rondo::test::World{4}.run([&](transport::World& world) {
    Communicator pair = world.communicator().split(world.rank() / 2);
    Communicator all = world.communicator().split(0);
    for (const Refused& row : table) {
      const std::vector<AveragingLevel> levels = row.levels(pair, all);
      EXPECT_THAT(rondo::test::error_text<std::invalid_argument>(
                      [&] { const AveragingSchedule schedule("test", row.period, levels, pair); }),
                  HasSubstr(row.reason));
    }
  });
}

// Reduction momentum against scalar models worked out by hand. All numbers are sums of few powers
// of two: every step is exact.

/// One round of `steps` steps at the same rate, and how far the ranks went.
struct Going {
  double rate;
  float displacement;
  int steps = 1;
};

/// W after each of the rounds, from W = 0.
std::vector<float> path(const ReductionMomentum& momentum, const std::vector<Going>& rounds) {
  CommonModel model("test", momentum, 1);
  std::vector<float> path;
  for (const Going& round : rounds) {
    for (int step = 0; step < round.steps; ++step) model.count_step(round.rate);
    std::vector<float> displacement{round.displacement};
    model.advance(displacement);
    path.push_back(model.parameters()[0]);
  }
  return path;
}

const std::vector<Going> constant_rate{{0.5, 8.0F}, {0.5, 4.0F}, {0.5, 2.0F}, {0.5, -1.0F}};
const std::vector<Going> changing_rate{{1.0, 8.0F}, {0.5, 4.0F}, {0.25, 2.0F}, {0.5, -1.0F}};
const std::vector<Going> falling_rate{{1.0, 8.0F}, {0.125, 0.0F}, {0.125, 0.0F}};
const std::vector<Going> odd{{0.3, 0.1F}, {0.2, 0.7F}, {0.1, -0.3F}};

struct Path {
  const char* what;
  ReductionMomentum momentum;
  std::vector<Going> rounds;
  std::vector<float> w;  ///< after each of the rounds
};

const std::vector<Path> paths = {
    // D             8     4     2    -1
    // V             8     8     6     2
    {"classical momentum adds the velocity",
     {.kind = MomentumKind::classical, .mu = 0.5F},
     changing_rate,
     {8.0F, 16.0F, 22.0F, 24.0F}},
    // D + V/2      12     8     5     0
    {"nesterov looks ahead",
     {.kind = MomentumKind::nesterov, .mu = 0.5F},
     changing_rate,
     {12.0F, 20.0F, 25.0F, 25.0F}},
    // In units of gradient it is momentum: u = mu*u - D/rate; W = W - rate*u.
    // rate          1   1/2   1/4   1/2
    // mu*ratio          1/4   1/4     1
    // V             8     6   3.5   2.5
    {"slowmo follows the learning rate",
     {.kind = MomentumKind::slowmo, .mu = 0.5F},
     changing_rate,
     {8.0F, 14.0F, 17.5F, 20.0F}},
    // rates         4     2     3
    // mu*ratio          1/4   3/4
    // V             8     6   6.5
    {"slowmo follows the sum of the rates of a round",
     {.kind = MomentumKind::slowmo, .mu = 0.5F},
     {{1.0, 8.0F, 4}, {0.5, 4.0F, 4}, {1.5, 2.0F, 2}},
     {8.0F, 14.0F, 20.5F}},
    // rate          1     0   1/2   1/4
    // mu*ratio            -   1/4   1/4   nothing is remembered at 0, nor forgotten: 1/2 follows 1
    // V             8     8     4     0
    {"slowmo adds the displacement alone at a rate of zero",
     {.kind = MomentumKind::slowmo, .mu = 0.5F},
     {{1.0, 8.0F}, {0.0, 4.0F}, {0.5, 2.0F}, {0.25, -1.0F}},
     {8.0F, 12.0F, 16.0F, 16.0F}},
    // Half of the first round's 8 comes again, and a quarter; slowmo's is of the falling rate.
    {"slowmo forgets as the rate falls",
     {.kind = MomentumKind::slowmo, .mu = 0.5F},
     falling_rate,
     {8.0F, 8.5F, 8.75F}},
    {"others do not", {.kind = MomentumKind::classical, .mu = 0.5F}, falling_rate, {8, 12, 14}},
    {"others do not", {.kind = MomentumKind::nesterov, .mu = 0.5F}, falling_rate, {12, 14, 15}},
    {"others do not", {.kind = MomentumKind::diloco, .mu = 0.5F}, falling_rate, {12, 14, 15}},
    // Nesterov's SGD on the outer gradient -D: v = mu*v + g; w -= rate*(g + mu*v).
    // V             8     8     6     2
    // (D + V/2)/4   3     2  1.25     0
    {"diloco scales by its rate",
     {.kind = MomentumKind::diloco, .mu = 0.5F, .outer_rate = 0.25F},
     changing_rate,
     {3.0F, 5.0F, 6.25F, 6.25F}},
    {"diloco without momentum still scales",
     {.kind = MomentumKind::diloco, .mu = 0.0F, .outer_rate = 0.5F},
     changing_rate,
     {4.0F, 6.0F, 7.0F, 6.5F}}};

TEST(CommonModelTest, GoesWhereItIsWorkedOutToGo) {
  for (const Path& each : paths) EXPECT_EQ(path(each.momentum, each.rounds), each.w) << each.what;
}

TEST(CommonModelTest, SlowMoIsClassicalWhileTheRateStays) {
  EXPECT_EQ(path({.kind = MomentumKind::slowmo, .mu = 0.5F}, constant_rate),
            path({.kind = MomentumKind::classical, .mu = 0.5F}, constant_rate));
}

// A round that was ended by a plain average has no part in V, nor its rates in the next one.
TEST(CommonModelTest, SlowMoLeavesOutARoundThatWasEndedEarly) {
  CommonModel model("test", {.kind = MomentumKind::slowmo, .mu = 0.5F}, 1);
  std::vector<float> displacement{8.0F};
  model.count_step(1.0);
  model.advance(displacement);
  model.count_step(16.0);
  model.add(std::vector<float>{2.0F});
  model.count_step(0.5);
  displacement[0] = 4.0F;

  model.advance(displacement);

  EXPECT_THAT(model.velocity(), ElementsAre(6.0F));
  EXPECT_THAT(model.parameters(), ElementsAre(16.0F));
}

TEST(CommonModelTest, DiLoCoAtRateOneIsNesterov) {
  EXPECT_EQ(path({.kind = MomentumKind::diloco, .mu = 0.9F}, odd),
            path({.kind = MomentumKind::nesterov, .mu = 0.9F}, odd));
}

TEST(CommonModelTest, WithoutMomentumEveryKindAddsTheDisplacement) {
  const std::vector<float> sums{0.1F, 0.1F + 0.7F, 0.1F + 0.7F + -0.3F};
  for (const auto kind : {MomentumKind::classical, MomentumKind::nesterov, MomentumKind::slowmo,
                          MomentumKind::diloco}) {
    const ReductionMomentum momentum{.kind = kind, .mu = 0.0F};

    EXPECT_EQ(path(momentum, odd), sums);
    EXPECT_TRUE(CommonModel("test", momentum, 1).is_plain());
    EXPECT_TRUE(CommonModel("test", momentum, 1).velocity().empty());
  }
  const ReductionMomentum scaling{.kind = MomentumKind::diloco, .mu = 0.0F, .outer_rate = 0.5F};
  EXPECT_FALSE(CommonModel("test", scaling, 1).is_plain());
}

TEST(CommonModelTest, RefusesWhatIsOutOfRange) {
  const auto making = [](const ReductionMomentum& momentum) {
    return [momentum] { const CommonModel model("test", momentum, 1); };
  };

  EXPECT_THAT(rondo::test::error_text<std::invalid_argument>(making({.mu = 1.0F})),
              HasSubstr("test: a reduction momentum of 1.0"));
  EXPECT_THROW(making({.mu = -0.5F})(), std::invalid_argument);
  EXPECT_THAT(rondo::test::error_text<std::invalid_argument>(
                  making({.kind = MomentumKind::diloco, .mu = 0.5F, .outer_rate = 0.0F})),
              HasSubstr("test: an outer rate of 0.0"));
  EXPECT_THAT(
      rondo::test::error_text<std::invalid_argument>(making({.mu = 0.5F, .outer_rate = 0.7F})),
      HasSubstr("only diloco has an outer rate"));
}

}  // namespace
}  // namespace rondo::sync::averaging_parts_test
