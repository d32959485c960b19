// The results that `rondo bench` makes of its samples: the line and the table that follow from
// times, patterns that tell wrong elements from right ones, the text of the report, and how results
// are checked.

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <numeric>
#include <span>
#include <stdexcept>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <rondo/transport/communicator.hpp>
#include <rondo/transport/world.hpp>

#include "bench/measure.hpp"
#include "bench/operation.hpp"
#include "bench/shared_block.hpp"
#include "bench/tune.hpp"
#include "support/world.hpp"

namespace rondo::tools::bench_results_test {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using transport::Bfloat16;
using transport::ReduceOp;

// The results that `rondo bench` makes of its samples, and its text about them.

BenchRow row_of_a_mebibyte() {
  BenchRow row;
  row.bytes = 1 << 20;
  row.count = 1 << 18;
  row.type = "f32";
  row.op = "sum";
  row.ranks = 4;
  row.memory = "arena";
  row.place = "in";
  row.time = {100.0, 1024.0, 2000.0};
  row.bus_factor = 1.5;
  return row;
}

TEST(BenchReportTest, CountsBandwidthInDecimalGigabytes) {
  const BenchRow row = row_of_a_mebibyte();
  EXPECT_DOUBLE_EQ(row.algorithm_gb_per_second(), 1.024);
  EXPECT_DOUBLE_EQ(row.bus_gb_per_second(), 1.024 * 1.5);
}

TEST(BenchReportTest, HasOneRowForEachMeasurementUnderStableNames) {
  EXPECT_EQ(table_of({row_of_a_mebibyte()}).csv(),
            "bytes,count,type,op,ranks,memory,place,min_us,median_us,p99_us,algbw_GBs,busbw_GBs,"
            "wrong\n"
            "1048576,262144,f32,sum,4,arena,in,100,1024,2000,1.024,1.536,0\n");
}

TEST(BenchReportTest, AddsTheLimitWhereItWasMeasured) {
  BenchRow row = row_of_a_mebibyte();
  row.limit_us = 512.0;
  const auto rows = nlohmann::ordered_json::parse(table_of({row}).json());
  EXPECT_EQ(rows[0]["limit_us"], 512.0);
  EXPECT_EQ(rows[0]["percent"], 50.0);
}

TEST(BenchReportTest, LabelsInjectedDelaysInEveryFormat) {
  BenchRow row = row_of_a_mebibyte();
  row.injected = "2us+1GB/s";
  const Table table = table_of({row});
  EXPECT_EQ(nlohmann::json::parse(table.json())[0]["injected"], "2us+1GB/s");
  EXPECT_THAT(table.csv(), testing::EndsWith(",2us+1GB/s\n"));
  EXPECT_THAT(table.text(), testing::EndsWith(" 2us+1GB/s\n"));
}

// With a limit 7 iterations became 5, and 3 as well.
TEST(RoundsTest, ShareOutAllIterations) {
  EXPECT_THAT(rounds_of(7), testing::ElementsAre(1, 1, 1, 2, 2));
  EXPECT_THAT(rounds_of(3), testing::ElementsAre(1, 1, 1));
  EXPECT_THAT(rounds_of(100), testing::ElementsAre(20, 20, 20, 20, 20));
}

// 1 GB/s.
BenchRow right_row() {
  BenchRow row = row_of_a_mebibyte();
  row.bytes = 1000;
  row.time = {1.0, 1.0, 1.0};
  row.bus_factor = 1.0;
  return row;
}

TEST(BenchVerdictTest, SaysWhichRowHasWrongElementsOrIsTooSlow) {
  BenchRow wrong = right_row();
  wrong.wrong = 3;
  BenchRow slow = right_row();
  slow.bytes = 500;

  EXPECT_THAT(complaints({right_row()}, 0.0), testing::IsEmpty());
  EXPECT_THAT(complaints({right_row(), wrong}, 0.0),
              ElementsAre(AllOf(HasSubstr("1000 bytes"), HasSubstr("3 elements are wrong"))));
  EXPECT_THAT(complaints({right_row(), slow}, 1.0),
              ElementsAre(AllOf(HasSubstr("500 bytes"), HasSubstr("0.500 GB/s is below 1 GB/s"))));
}

// Ranks of another host have no file of that number, or another process has.
TEST(OneMachineTest, IsTakenOfFakeNodesOnOneHostAlone) {
  const transport::RankInfo here{.pid = 1, .host = "a", .node = 0};
  const transport::RankInfo fake{.pid = 2, .host = "a", .node = 1};
  const transport::RankInfo there{.pid = 2, .host = "b", .node = 1};
  EXPECT_TRUE(on_one_machine(std::vector{here, here}, false));
  EXPECT_TRUE(on_one_machine(std::vector{here, fake}, true));
  EXPECT_FALSE(on_one_machine(std::vector{here, there}, false));
  EXPECT_FALSE(on_one_machine(std::vector{here, there}, true));
}

// Minimum, median and p99 of `count` samples from `first` on, the largest first.
std::array<double, 3> summary_of(std::size_t count, double first) {
  std::vector<double> samples(count);
  std::iota(samples.rbegin(), samples.rend(), first);
  const Summary summary = summarize(samples);
  return {summary.min_us, summary.median_us, summary.p99_us};
}

TEST(SamplesTest, HaveAMinimumAMedianAndAP99InAnyOrder) {
  EXPECT_THAT(summary_of(101, 0.0), ElementsAre(0.0, 50.0, 99.0));
  EXPECT_THAT(summary_of(100, 1.0), ElementsAre(1.0, 50.5, 99.0));  // two are in the middle
  EXPECT_THAT(summary_of(1, 3.0), ElementsAre(3.0, 3.0, 3.0));
  EXPECT_THROW(static_cast<void>(summarize({})), std::invalid_argument);
}

// Patterns that tell wrong elements from right ones, and the grid of ranks that halos need.

template <typename T>
class PatternTest : public testing::Test {};

using Types = testing::Types<float, double, Bfloat16, std::int32_t, std::int64_t, std::uint8_t>;
TYPED_TEST_SUITE(PatternTest, Types);

TYPED_TEST(PatternTest, FindsItsOwnElementsRightAtAnyOffset) {
  const auto pattern = Pattern<TypeParam>::moved(3);
  std::vector<TypeParam> data(1000);
  pattern.fill(data, 777);
  EXPECT_EQ(pattern.count_wrong(data, 777), 0);
}

TYPED_TEST(PatternTest, CountsEachElementOnce) {
  const auto pattern = Pattern<TypeParam>::moved(0);
  std::vector<TypeParam> data(1000);
  pattern.fill(data);
  data[0] = data[500] = data[999] = element_of<TypeParam>(255);
  EXPECT_EQ(pattern.count_wrong(data), 3);
}

TYPED_TEST(PatternTest, FindsSpoiledElementsWrong) {
  std::vector<TypeParam> data(1000);
  spoil<TypeParam>(data);
  EXPECT_EQ(Pattern<TypeParam>::moved(5).count_wrong(data), 1000);
  EXPECT_EQ(Pattern<TypeParam>::reduced({0, 1, 2}, 3, ReduceOp::sum).count_wrong(data), 1000);
}

TYPED_TEST(PatternTest, FindsAnotherRanksElementsWrong) {
  std::vector<TypeParam> data(1000);
  Pattern<TypeParam>::moved(1).fill(data);
  EXPECT_EQ(Pattern<TypeParam>::moved(2).count_wrong(data), 1000);
}

TYPED_TEST(PatternTest, SeesThatDataIsAPowerOfTwoBesideItsPlace) {
  const auto pattern = Pattern<TypeParam>::moved(0);
  std::vector<TypeParam> data(1000);
  for (std::size_t shift = 1; shift < 1U << 20U; shift *= 2) {
    pattern.fill(data, shift);
    EXPECT_GT(pattern.count_wrong(data), 0) << shift;
  }
}

TEST(PatternSumTest, AddsUpWhatAllRanksGive) {
  std::vector<float> sum(600, 0.0F);
  std::vector<float> one(600);
  for (const int rank : {0, 2, 4}) {
    Pattern<float>::given(rank, 5).fill(one);
    for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += one[i];
  }
  EXPECT_EQ(Pattern<float>::reduced({0, 2, 4}, 5, ReduceOp::sum).count_wrong(sum), 0);
}

// A sum that a bf16 cannot hold would be wrong by rounding alone.
TEST(PatternSumTest, StaysBelowWhatBfloat16HoldsOnManyRanks) {
  std::vector<int> ranks(1000);
  std::iota(ranks.begin(), ranks.end(), 0);
  std::vector<std::int64_t> sums(Pattern<std::int64_t>::period);
  Pattern<std::int64_t>::reduced(ranks, 1000, ReduceOp::sum).fill(sums);
  for (const std::int64_t sum : sums) EXPECT_LT(sum, 255);
}

TEST(ProcessGridTest, IsAsSquareAsTheNumberAllows) {
  for (const auto& [ranks, rows] : {std::pair{4, 2}, {6, 2}, {7, 1}, {16, 4}}) {
    EXPECT_EQ(ProcessGrid::of(ranks).rows, rows);
    EXPECT_EQ(ProcessGrid::of(ranks).columns, ranks / rows);
  }
}

TEST(ProcessGridTest, FindsNeighboursRowByRowUpToItsEdges) {
  const ProcessGrid grid = ProcessGrid::of(6);
  EXPECT_EQ(grid.neighbour(1, 1, 0), 4);
  EXPECT_EQ(grid.neighbour(1, 0, 1), 2);
  EXPECT_EQ(grid.neighbour(4, -1, -1), 0);
  EXPECT_EQ(grid.neighbour(2, 0, 1), -1);
  EXPECT_EQ(grid.neighbour(0, -1, 0), -1);
  EXPECT_EQ(grid.neighbour(3, 1, -1), -1);
}

// What is concluded from measured times.

struct Chosen {
  std::vector<std::size_t> sizes;
  std::vector<AlgorithmTimes> times;
  const char* table;
};

TEST(AlgorithmTableTest, ChangesWhereAnotherBecomesFaster) {
  const std::vector<Chosen> cases = {
      {{1024, 4096, 65536, 262144},
       {{"rd", {1, 2, 30, 100}}, {"ring", {5, 5, 20, 40}}},
       "rd:0-16k;ring:16k-max"},
      {{1024, 4096}, {{"rd", {1, 2}}, {"ring", {5, 5}}}, "rd:0-max"},
      {{1024, 4096}, {{"rd", {8, 9}}, {"ring", {5, 5}}}, "ring:0-max"},
      // A single slow sample must not cut the table into pieces.
      {{256, 1024, 4096, 16384, 65536},
       {{"rd", {1, 6, 3, 20, 99}}, {"ring", {5, 5, 9, 9, 9}}},
       "rd:0-8k;ring:8k-max"},
      {{1024, 4096, 16384},
       {{"a", {1, 9, 9}}, {"b", {9, 1, 9}}, {"c", {9, 9, 1}}},
       "a:0-2k;b:2k-8k;c:8k-max"}};
  for (const Chosen& chosen : cases) {
    EXPECT_EQ(best_table(chosen.sizes, chosen.times), chosen.table);
  }
}

TEST(AlgorithmTableTest, RefusesToChooseAmongNothing) {
  EXPECT_THROW(static_cast<void>(best_table({}, {{"rd", {}}})), std::invalid_argument);
  EXPECT_THROW(static_cast<void>(best_table({1024}, {})), std::invalid_argument);
}

TEST(AlgorithmTableTest, WritesSizesInWholeUnits) {
  EXPECT_EQ(short_size(0), "0");
  EXPECT_EQ(short_size(1000), "1000");
  EXPECT_EQ(short_size(1536 * 1024), "1536k");
  EXPECT_EQ(short_size(2 * 1024 * 1024), "2m");
}

TEST(LineFitTest, FindsTheLineOnWhichAllTimesLie) {
  const std::vector<TimedSize> samples = {
      {8, 2e-6 + 8e-9}, {1024, 2e-6 + 1024e-9}, {1 << 20, 2e-6 + (1 << 20) * 1e-9}};
  const LineFit fit = fit_line(samples);
  EXPECT_NEAR(fit.alpha_seconds, 2e-6, 1e-12);
  EXPECT_NEAR(fit.beta_seconds_per_byte, 1e-9, 1e-15);
}

// By absolute errors the latency would be whatever the largest size leaves over.
TEST(LineFitTest, LetsSmallMessagesCountAsMuchAsLargeOnes) {
  const std::vector<TimedSize> samples = {
      {8, 1e-6}, {16, 1e-6}, {1 << 24, 1.1e-2}, {1 << 26, 3.6e-2}};
  EXPECT_NEAR(fit_line(samples).alpha_seconds, 1e-6, 1e-7);
}

TEST(LineFitTest, HasNoNegativeLatencyAndNoNegativeCostOfBytes) {
  const LineFit steep = fit_line(std::vector<TimedSize>{{1000, 1e-7}, {2000, 1e-5}});
  EXPECT_EQ(steep.alpha_seconds, 0.0);
  EXPECT_GT(steep.beta_seconds_per_byte, 0.0);
  const LineFit falling = fit_line(std::vector<TimedSize>{{1000, 2e-6}, {2000, 1e-6}});
  EXPECT_GT(falling.alpha_seconds, 0.0);
  EXPECT_EQ(falling.beta_seconds_per_byte, 0.0);
}

TEST(LineFitTest, RefusesASingleSizeAndATimeOfNothing) {
  for (const auto& samples :
       {std::vector<TimedSize>{{8, 1e-6}, {8, 2e-6}}, {{8, 0.0}, {16, 1e-6}}}) {
    EXPECT_THROW(static_cast<void>(fit_line(samples)), std::invalid_argument);
  }
}

// Operations that give wrong results. Each is run once and checked, run in two iterations, and run
// once more and checked again.

constexpr std::size_t elements = 10;
constexpr int always = 100;

// On rank 1 only its first `right_runs` runs do anything; rank 0 is always right.
template <int right_runs>
class Faulty final : public BenchOperation {
 public:
  explicit Faulty(const BenchSetting& setting)
      : left_(setting.ranks->rank() == 0 ? always : right_runs) {}

  [[nodiscard]] BenchFacts facts() const override {
    return {.bytes = elements * sizeof(float), .count = elements};
  }
  void run() override {
    if (left_-- > 0) pattern_.fill(data_);
  }
  void spoil() override { tools::spoil(std::span<float>(data_)); }
  [[nodiscard]] std::int64_t count_wrong() override { return pattern_.count_wrong(data_); }

 private:
  int left_;
  Pattern<float> pattern_ = Pattern<float>::moved(0);
  std::array<float, elements> data_ = {};
};

template <class Operation>
constexpr OperationKind kind_of(BenchRanks ranks) {
  return {.name = "made up",
          .summary = "",
          .sizes = "40",
          .most_bytes = 0,
          .places = BenchPlaces::in,
          .ranks = ranks,
          .reduces = false,
          .make = [](const BenchSetting& setting) {
            return std::unique_ptr<BenchOperation>(std::make_unique<Operation>(setting));
          }};
}

Bench bench_of(const OperationKind& kind, int iterations) {
  return {.kind = &kind,
          .sizes = {elements * sizeof(float)},
          .memories = {BenchMemory::private_memory},
          .in_place = {true},
          .iterations = iterations,
          .warm_up = 0};
}

template <int right_runs>
std::vector<BenchRow> rows_of_faulty(transport::World& world) {
  const OperationKind kind = kind_of<Faulty<right_runs>>(BenchRanks::all);
  return measure(world, bench_of(kind, 2));
}

TEST(BenchCheckTest, CountsTheWrongElementsOfAllRanksBeforeAndAfterTheIterations) {
  rondo::test::World{2}.run([](transport::World& world) {
    const auto right = rows_of_faulty<always>(world);
    const auto idle = rows_of_faulty<0>(world);
    // Its buffers still hold the right result of the first run, but for spoil().
    const auto once = rows_of_faulty<1>(world);
    ASSERT_EQ(right.size(), 1U);
    ASSERT_EQ(idle.size(), 1U);
    ASSERT_EQ(once.size(), 1U);
    constexpr auto count = static_cast<std::int64_t>(elements);
    EXPECT_EQ(right[0].wrong, 0);
    EXPECT_EQ(idle[0].wrong, 2 * count);
    EXPECT_EQ(once[0].wrong, count);
  });
}

// Its number of elements is the rank that rank 0 talks to; its bus factor, the ways at once.
class Paired final : public BenchOperation {
 public:
  explicit Paired(const BenchSetting& setting) : setting_(setting) {}

  [[nodiscard]] BenchFacts facts() const override {
    return {.bytes = sizeof(float),
            .count = static_cast<std::size_t>(setting_.second),
            .bus_factor = setting_.both_ways ? 2.0 : 1.0};
  }
  void run() override {}
  [[nodiscard]] std::int64_t count_wrong() override { return setting_.first; }

 private:
  BenchSetting setting_;
};

TEST(BenchCheckTest, MeasuresThePairThatIsAskedFor) {
  const OperationKind kind = kind_of<Paired>(BenchRanks::pair);
  rondo::test::World{3}.run([&](transport::World& world) {
    const Bench last = bench_of(kind, 1);
    Bench neighbour = last;
    neighbour.peer = 1;
    neighbour.both_ways = true;

    const BenchRow far = measure(world, last).at(0);
    const BenchRow near = measure(world, neighbour).at(0);

    EXPECT_EQ(far.count, 2U);
    EXPECT_EQ(far.bus_factor, 1.0);
    EXPECT_EQ(near.count, 1U);
    EXPECT_EQ(near.bus_factor, 2.0);
    EXPECT_EQ(near.wrong, 0);
  });
}

}  // namespace
}  // namespace rondo::tools::bench_results_test
