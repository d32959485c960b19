// Times of layers: what is measured, what is guessed, what is kept. No time is asserted.

#include <limits>

#include <gtest/gtest.h>

#include <rondo/train/plan_best.hpp>
#include <rondo/train/scaling.hpp>
#include <rondo/transport/team.hpp>

#include "support/scratch_folder.hpp"

namespace rondo::train::compute_table_test {
namespace {

LocalWork small_convolution(std::int64_t samples, std::int64_t filters = 16) {
  return {.layer = "conv",
          .kind = ConvolutionLayer{.filters = filters},
          .input = {samples, 8, 8, 16},
          .input_gradient = true};
}

LocalWork connected(std::int64_t samples) {
  return {.layer = "fc",
          .kind = FullyConnectedLayer{.outputs = 10},
          .input = {samples, 1, 1, 64},
          .input_gradient = false};
}

class ComputeTableTest : public testing::Test {
 protected:
  [[nodiscard]] std::filesystem::path file() const { return scratch_.path() / "a" / "times.json"; }

  rondo::test::ScratchFolder scratch_;
};

TEST_F(ComputeTableTest, MeasuresEveryDirection) {
  ComputeTable table(1);

  table.measure(small_convolution(2));
  table.measure(connected(2));

  const WorkSeconds convolution = table.seconds(small_convolution(2));
  EXPECT_GT(convolution.forward, 0.0);
  EXPECT_GT(convolution.backward_weights, 0.0);
  EXPECT_GT(convolution.backward_data, 0.0);
  EXPECT_EQ(table.seconds(connected(2)).backward_data, 0.0);
  EXPECT_EQ(table.measurements(), 2);
}

TEST_F(ComputeTableTest, MeasuresAShapeOnce) {
  ComputeTable table(1);
  table.measure(small_convolution(2));
  table.measure(small_convolution(2));
  EXPECT_TRUE(table.knows(small_convolution(2)));
  EXPECT_FALSE(table.knows(small_convolution(3)));
  EXPECT_TRUE(table.knows(small_convolution(0)));
  EXPECT_EQ(table.seconds(small_convolution(0)).total(), 0.0);
  EXPECT_EQ(table.measurements(), 1);
}

// 2 * 8 * 8 * 16 * 16 * 9 flops a sample: 1e9 are 3,390, of which 2,048 are measured.
TEST_F(ComputeTableTest, MeasuresAPartOfManySamples) {
  ComputeTable table(1);
  table.measure(small_convolution(1 << 14));
  EXPECT_TRUE(table.knows(small_convolution(1 << 12)));
  EXPECT_DOUBLE_EQ(table.seconds(small_convolution(1 << 14)).forward,
                   8.0 * table.seconds(small_convolution(1 << 11)).forward);
}

TEST_F(ComputeTableTest, GuessesAtTheRateOfTheSameLayer) {
  ComputeTable table(1);
  EXPECT_EQ(table.seconds(small_convolution(2, 32)).total(), 0.0);
  table.measure(small_convolution(2, 16));
  EXPECT_DOUBLE_EQ(table.seconds(small_convolution(2, 32)).forward,
                   2.0 * table.seconds(small_convolution(2, 16)).forward);
}

// A step packs weights and computes a loss besides its layers, so that it is no shorter.
TEST_F(ComputeTableTest, LayersTakeAsLongAsInAStep) {
  const Model model = make_model("lenet5");
  ComputeTable alone(1, file());
  for (const LocalWork& work : unsplit_work(model, 4)) alone.measure(work);
  alone.save();
  ComputeTable in_a_step(1, file());

  in_a_step.measure_step(model, 4, 4);

  const auto factor = [&](const LocalWork& work) {
    return in_a_step.seconds(work).total() / alone.seconds(work).total();
  };
  const double all = factor(unsplit_work(model, 4).front());
  EXPECT_GE(all, 1.0);
  for (const LocalWork& work : unsplit_work(model, 8)) EXPECT_NEAR(factor(work), all, 1e-9 * all);
  const int measurements = in_a_step.measurements();
  in_a_step.measure_step(model, 4, 4);
  EXPECT_EQ(in_a_step.measurements(), measurements);
  EXPECT_NEAR(factor(unsplit_work(model, 4).front()), all, 1e-9 * all);
}

// The part that does not grow with the samples counts less where there are more of them.
TEST_F(ComputeTableTest, StepsOfMoreSamplesTellWhatIsFixed) {
  const Model model = make_model("lenet5");
  ComputeTable alone(1, file());
  for (const std::int64_t samples : {2, 8}) {
    for (const LocalWork& work : unsplit_work(model, samples)) alone.measure(work);
  }
  alone.save();
  ComputeTable in_a_step(1, file());

  in_a_step.measure_step(model, 2, 100);

  double before = std::numeric_limits<double>::infinity();
  for (const std::int64_t samples : {1, 2, 8, 64}) {
    const LocalWork work = unsplit_work(model, samples).front();
    const double factor = in_a_step.seconds(work).total() / alone.seconds(work).total();
    EXPECT_GE(factor, 1.0);
    EXPECT_LE(factor, before * (1 + 1e-9));
    before = factor;
  }
}

TEST_F(ComputeTableTest, KeepsTimesInAFile) {
  ComputeTable first(1, file());
  first.measure(small_convolution(2));
  first.measure_update(1000);
  first.save();

  ComputeTable second(1, file());
  second.measure(small_convolution(2));
  second.measure_update(1000);

  EXPECT_EQ(second.measurements(), 0);
  EXPECT_DOUBLE_EQ(second.seconds(small_convolution(2)).forward,
                   first.seconds(small_convolution(2)).forward);
  EXPECT_DOUBLE_EQ(second.update_seconds(500), first.update_seconds(1000) / 2);
  EXPECT_GT(second.update_seconds(500), 0.0);
  EXPECT_FALSE(ComputeTable(2, file()).knows(small_convolution(2))) << "on other threads";
}

// Counts how often it is asked.
class CountingTeam final : public transport::Team {
 public:
  [[nodiscard]] int size() const noexcept override { return 2; }
  void run(void (*part)(void* context, int index), void* context) override {
    ++runs_;
    for (int index = 0; index < size(); ++index) part(context, index);
  }
  [[nodiscard]] int runs() const noexcept { return runs_; }

 private:
  int runs_ = 0;
};

TEST_F(ComputeTableTest, UpdatesOfOtherOptimizersAndTeamsAreMeasuredAnew) {
  constexpr std::size_t parameters = 1 << 20;
  CountingTeam team;
  const auto measurements = [&](const UpdateBenchmark& update) {
    ComputeTable table(1, file(), tensor::DataType::f32, update);
    table.measure_update(parameters);
    table.save();
    EXPECT_GT(table.update_seconds(parameters), 0.0);
    return table.measurements();
  };
  EXPECT_EQ(measurements({}), 1);
  EXPECT_EQ(measurements({}), 0);
  using enum OptimizerName;
  for (const OptimizerName name : {lars, adam, adamw}) {
    EXPECT_EQ(measurements({.optimizer = {.name = name}}), 1);
  }
  EXPECT_EQ(team.runs(), 0);
  EXPECT_EQ(measurements({.team = &team}), 1);
  EXPECT_GT(team.runs(), 0);
}

// Only a part of a large model's update is measured.
TEST_F(ComputeTableTest, UpdatesOfModelsOfOtherSizesAreMeasuredAnew) {
  constexpr std::size_t large = 1 << 22;
  const auto measurements = [&](std::size_t parameters) {
    ComputeTable table(1, file());
    table.measure_update(parameters);
    table.save();
    return table.measurements();
  };
  EXPECT_EQ(measurements(1000), 1);
  EXPECT_EQ(measurements(large), 1);
  EXPECT_EQ(measurements(1000), 0);
  EXPECT_EQ(measurements(2 * large), 0);
}

TEST_F(ComputeTableTest, KeepsWhatOthersHaveWritten) {
  ComputeTable first(1, file());
  ComputeTable second(1, file());
  first.measure(small_convolution(2));
  second.measure(connected(2));
  first.save();
  second.save();
  EXPECT_TRUE(ComputeTable(1, file()).knows(small_convolution(2)));
  EXPECT_TRUE(ComputeTable(1, file()).knows(connected(2)));
}

TEST_F(ComputeTableTest, ReplacesFilesThatItCannotUnderstand) {
  scratch_.write("broken.json", "{\"format\": 1, \"seconds\": {\"x\": [1");
  const std::filesystem::path broken = scratch_.path() / "broken.json";
  ComputeTable table(1, broken);
  table.measure(connected(2));
  table.save();
  EXPECT_TRUE(ComputeTable(1, broken).knows(connected(2)));
}

TEST_F(ComputeTableTest, TheWinnerOfASearchIsMeasuredWhole) {
  const Model model{.name = "small",
                    .input = {1, 8, 8, 16},
                    .classes = 32,
                    .layers = {{"conv", ConvolutionLayer{.filters = 32}, {0}},
                               {"fc", FullyConnectedLayer{.outputs = 32}, {1}}}};
  const PlanOptions options{.ranks = 2, .batch = 2};
  ComputeTable table(1);

  const BestPlan best = measured_best_plans(model, options, table, 1000).front();

  for (const LocalWork& work : work_of(model, options, best)) EXPECT_TRUE(table.knows(work));
}

TEST_F(ComputeTableTest, MeasuresNoMoreThanAllowed) {
  const Model model = make_model("resnet8");
  ComputeTable table(1);
  const auto plans = measured_best_plans(model, {.ranks = 4, .batch = 4}, table, 1);
  EXPECT_FALSE(plans.empty());
  // What is needed to begin: layers and a step, on two numbers of samples, and the update.
  EXPECT_LE(table.measurements(), 2 * static_cast<int>(model.layers.size() + 1) + 1);
}

}  // namespace
}  // namespace rondo::train::compute_table_test
