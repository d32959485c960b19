// What a step promises its caller: order of calls, sums over samples, empty batches, evaluation.

#include <algorithm>
#include <cmath>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <rondo/train/executor.hpp>
#include <rondo/train/step_profile.hpp>

#include "train/support/network.hpp"

namespace rondo::train::executor_test {
namespace {

using test::make_samples;
using test::Network;
using test::Recorder;
using test::Samples;
using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

constexpr double rounding = 2e-5;  // relative, for sums in another order

Network lenet(std::vector<std::int64_t> batches) {
  return {make_model("lenet5"), {.training_batches = std::move(batches), .evaluation_batch = 4}};
}

TEST(ExecutorTest, TellsTheObserverInTheOrderOfThePasses) {
  Network net(make_model("lenet5"), {.training_batches = {2}});
  const Samples samples = make_samples(net.model, 2);
  Recorder recorder;

  net.executor.train(samples.batch(), recorder);

  EXPECT_THAT(recorder.calls,
              ElementsAre("ready 0", "between", "between", "ready 1", "between", "between",
                          "ready 2", "between", "ready 3", "between", "ready 4", "between",  //
                          "final 4", "between", "final 3", "between", "final 2", "between",
                          "between", "final 1", "between", "between", "final 0", "between"));
}

// Does nothing but to name a profile.
class Profiled final : public StepObserver {
 public:
  explicit Profiled(StepProfile& profile) : profile_(profile) {}
  void make_ready(std::size_t /*block*/) override {}
  void gradients_final(std::size_t /*block*/) override {}
  void between_layers() override {}
  [[nodiscard]] StepProfile* profile() override { return &profile_; }

 private:
  StepProfile& profile_;
};

TEST(ExecutorTest, NotesTheTimesOfEveryLayerInTheProfilesSteps) {
  Network net(make_model("lenet5"), {.training_batches = {2}});
  const Samples samples = make_samples(net.model, 2);
  StepProfile profile(2, 2);
  Profiled observer(profile);

  for (int step = 1; step <= 3; ++step) {
    const StepProfile::Step whole(&profile, step);
    net.executor.train(samples.batch(), observer);
  }

  std::map<std::string, int> count;
  for (const StepProfile::Span& span : profile.spans()) ++count[span.part];
  const auto layers = static_cast<int>(net.model.layers.size());
  EXPECT_EQ(count["step"], 1);
  EXPECT_EQ(count["loss"], 1);
  EXPECT_EQ(count["forward"], layers);
  EXPECT_EQ(count["backward_parameters"], layers);
  EXPECT_EQ(count["pack"], 5);
  EXPECT_EQ(profile.spans().front().layer, "conv1");
}

TEST(ExecutorTest, TellsTheSameOfAnEmptyBatch) {
  Network net(make_model("resnet20"), {.training_batches = {2}, .evaluation_batch = 2});
  const Samples samples = make_samples(net.model, 2);
  Recorder full;
  Recorder empty;

  net.executor.train(samples.batch(), full);
  net.executor.train({}, empty);

  EXPECT_EQ(full.calls, empty.calls);
}

TEST(ExecutorTest, LeavesZeroGradientsAfterAnEmptyBatch) {
  Network net(test::small_residual_model(), {.training_batches = {2}});
  net.train(make_samples(net.model, 2).batch());
  const std::vector<float> statistics = net.statistics;

  const tensor::Loss loss = net.train({});

  EXPECT_EQ(loss.sum, 0.0);
  EXPECT_THAT(net.gradients, Each(0.0F));
  EXPECT_EQ(net.statistics, statistics);
}

TEST(ExecutorTest, SumsOverTheSamplesOfABatch) {
  Network net = lenet({1, 3});
  const Samples samples = make_samples(net.model, 3);
  std::vector<float> sum(net.layout.parameter_count, 0.0F);
  double loss = 0.0;
  for (std::int64_t i = 0; i < 3; ++i) {
    loss += net.train(samples.part(i, 1)).sum;
    std::ranges::transform(sum, net.gradients, sum.begin(), std::plus<>());
  }

  const tensor::Loss whole = net.train(samples.batch());

  EXPECT_NEAR(whole.sum, loss, rounding * loss);
  EXPECT_LT(test::relative_distance(net.gradients, sum), rounding);
}

TEST(ExecutorTest, GivesTheSameBitsEveryTime) {
  Network net(test::small_residual_model(), {.training_batches = {4}});
  const Samples samples = make_samples(net.model, 4);
  net.train(samples.batch());
  const std::vector<float> first = net.gradients;

  net.train(samples.batch());

  EXPECT_EQ(net.gradients, first);
}

TEST(ExecutorTest, EvaluatesWithoutTouchingAnyState) {
  Network net(test::small_residual_model(), {.training_batches = {4}, .evaluation_batch = 4});
  const Samples samples = make_samples(net.model, 4);
  net.train(samples.batch());
  const std::vector<float> parameters = net.parameters;
  const std::vector<float> gradients = net.gradients;
  const std::vector<float> statistics = net.statistics;

  net.evaluate(samples.batch());

  EXPECT_EQ(net.parameters, parameters);
  EXPECT_EQ(net.gradients, gradients);
  EXPECT_EQ(net.statistics, statistics);
}

TEST(ExecutorTest, EvaluatesWithTheParametersItIsGiven) {
  Network net = lenet({4});
  const Samples samples = make_samples(net.model, 4);
  const std::vector<float> zeros(net.layout.parameter_count, 0.0F);

  const tensor::Loss blank = net.executor.evaluate(samples.batch(), zeros, net.statistics);
  const tensor::Loss own = net.evaluate(samples.batch());
  const tensor::Loss trained = net.train(samples.batch());

  EXPECT_NEAR(blank.sum, 4.0 * std::log(10.0), rounding);
  EXPECT_NEAR(own.sum, trained.sum, rounding);
  EXPECT_NE(own.sum, blank.sum);
}

TEST(ExecutorTest, EvaluatesRemaindersLikeWholeBatches) {
  Network net(test::small_residual_model(), {.training_batches = {4}, .evaluation_batch = 4});
  const Samples samples = make_samples(net.model, 4);
  const tensor::Loss whole = net.evaluate(samples.batch());

  const tensor::Loss first = net.evaluate(samples.part(0, 3));
  const tensor::Loss second = net.evaluate(samples.part(3, 1));

  EXPECT_NEAR(first.sum + second.sum, whole.sum, rounding * whole.sum);
  EXPECT_EQ(first.correct + second.correct, whole.correct);
  EXPECT_EQ(net.executor.logits().size(), 3U);
}

TEST(ExecutorTest, TrainsAfterEvaluatingOtherParameters) {
  Network net = lenet({4});
  const Samples samples = make_samples(net.model, 4);
  net.train(samples.batch());
  const std::vector<float> expected = net.gradients;
  const std::vector<float> zeros(net.layout.parameter_count, 0.0F);

  (void)net.executor.evaluate(samples.batch(), zeros, net.statistics);
  net.train(samples.batch());

  EXPECT_EQ(net.gradients, expected);
}

TEST(ExecutorTest, FollowsParametersThatChangeInMakeReady) {
  class Zeroing final : public StepObserver {
   public:
    explicit Zeroing(std::span<float> parameters) : parameters_(parameters) {}
    void make_ready(std::size_t group) override {
      if (group == 0) std::ranges::fill(parameters_, 0.0F);
    }
    void gradients_final(std::size_t /*group*/) override {}
    void between_layers() override {}

   private:
    std::span<float> parameters_;
  };
  Network net = lenet({4});
  Zeroing zeroing(net.parameters);

  const tensor::Loss loss = net.executor.train(make_samples(net.model, 4).batch(), zeroing);

  EXPECT_NEAR(loss.sum, 4.0 * std::log(10.0), rounding);
}

TEST(ExecutorTest, RefusesBatchesItWasNotMadeFor) {
  Network net = lenet({2});
  const Samples samples = make_samples(net.model, 5);

  EXPECT_THROW(net.train(samples.part(0, 3)), std::invalid_argument);
  EXPECT_THROW(net.evaluate(samples.batch()), std::invalid_argument);
}

TEST(ExecutorTest, RefusesBatchesWhoseArraysDoNotFit) {
  Network net = lenet({2});
  const Samples samples = make_samples(net.model, 3);
  Batch batch = samples.part(0, 2);
  batch.images = samples.images;

  EXPECT_THROW(net.train(batch), std::invalid_argument);
}

// A wrong memory format falls back to a kernel several hundred times slower, and nothing else
// would tell.
TEST(ExecutorTest, RunsNoReferenceKernelInTheZoo) {
  for (const std::string& name : test::quick_models()) {
    const Network net(make_model(name), {.training_batches = {64}, .evaluation_batch = 36});

    const std::vector<std::string> lines = net.executor.implementations();

    EXPECT_FALSE(lines.empty());
    EXPECT_THAT(lines, Each(Not(HasSubstr("ref")))) << name;
  }
}

}  // namespace
}  // namespace rondo::train::executor_test
