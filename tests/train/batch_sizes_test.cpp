// Batches of all sizes: shared memory, micro-batches, and updates.

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <rondo/train/executor.hpp>
#include <rondo/transport/world.hpp>

#include "executor/memory.hpp"
#include "schemes/make_scheme.hpp"
#include "support/error_text.hpp"
#include "support/world.hpp"
#include "train/experiments.hpp"
#include "train/outcome.hpp"
#include "train/support/network.hpp"
#include "trainer/step_link.hpp"

namespace rondo::train::batch_sizes_test {
namespace {

using test::make_samples;
using test::Network;
using test::relative_distance;
using test::Samples;
using test::small_experiment;
using test::train_on;
using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

// One step or evaluation runs at a time, so all batch sizes share their memory: evaluation and
// short batches take none beside that of the largest batch, and disturb nobody.

/// Bytes that an executor of `name` takes.
std::size_t bytes_of(const std::string& name, const ExecutorOptions& options) {
  MemoryAccount account;
  AccountedMemory memory(account);
  const Network net(make_model(name), options, 1, &memory);
  return account.peak();
}

// Kernels for other numbers of images may prefer weights in layouts that need a little more.
void expect_no_more(const std::string& name, const ExecutorOptions& options) {
  const std::int64_t largest = options.training_batches.front();
  const std::size_t alone =
      bytes_of(name, {.training_batches = {largest}, .evaluation_batch = largest});
  EXPECT_LE(static_cast<double>(bytes_of(name, options)), 1.01 * static_cast<double>(alone))
      << name;
}

TEST(BatchSizesTest, EvaluationTakesNoMemoryOfItsOwn) {
  for (const std::string name : {"lenet5", "resnet8"}) {
    expect_no_more(name, {.training_batches = {8}, .evaluation_batch = 3});
    expect_no_more(name, {.training_batches = {8}});
  }
}

TEST(BatchSizesTest, ShortBatchesTakeNoMemoryOfTheirOwn) {
  for (const std::string name : {"lenet5", "resnet8"}) {
    expect_no_more(name, {.training_batches = {32, 20, 7}, .evaluation_batch = 13});
  }
}

/// The most that rank 0 of a run has taken.
std::uint64_t peak_of(int ranks, const Experiment& experiment) {
  return test::train_on(ranks, experiment).summaries[0].peak_bytes;
}

// 2 samples a rank, of which the activations would be a fiftieth of those of 100.
TEST(BatchSizesTest, ALargeTestSetTakesNoMoreMemoryThanASmallOne) {
  Experiment experiment = test::small_experiment("resnet8", 4);
  experiment.train.max_steps = 1;
  experiment.data.test = 4;
  const std::uint64_t small = peak_of(2, experiment);
  experiment.data.test = 201;
  EXPECT_EQ(peak_of(2, experiment), small);
}

TEST(BatchSizesTest, OnAGridAShortLastBatchTakesNoMemoryOfItsOwn) {
  Experiment experiment = test::small_experiment("resnet8", 8);
  experiment.train.max_steps = 1;
  for (const Experiment::Grid& grid : {Experiment::Grid{.height = 2}, {.filter = 2}}) {
    experiment.grid = grid;
    experiment.data.training = 16;
    const std::uint64_t even = peak_of(2, experiment);
    experiment.data.training = 21;

    EXPECT_LE(static_cast<double>(peak_of(2, experiment)), 1.01 * static_cast<double>(even));
  }
}

TEST(BatchSizesTest, NoneDisturbsAnother) {
  const Model model = test::small_residual_model();
  Network several(model, {.training_batches = {4, 3}, .evaluation_batch = 2});
  Network four(model, {.training_batches = {4}});
  Network three(model, {.training_batches = {3}});
  const Samples samples = make_samples(model, 4);

  for (int round = 0; round < 2; ++round) {
    several.train(samples.part(0, 4));
    four.train(samples.part(0, 4));
    EXPECT_EQ(several.gradients, four.gradients);
    several.evaluate(samples.part(0, 2));
    several.train(samples.part(0, 3));
    three.train(samples.part(0, 3));
    EXPECT_EQ(several.gradients, three.gradients);
  }
}

TEST(BatchSizesTest, EvaluationHasNoBackwardKernels) {
  const Network net(make_model("resnet8"), {.evaluation_batch = 4});
  const std::vector<std::string> kernels = net.executor.implementations();
  EXPECT_FALSE(kernels.empty());
  EXPECT_THAT(kernels, Each(HasSubstr("forward")));
  EXPECT_THAT(kernels, Each(Not(HasSubstr("data"))));
  EXPECT_THAT(kernels, Each(Not(HasSubstr("weights"))));
}

TEST(BatchSizesTest, EvaluatesAPartOfABatch) {
  Network net(make_model("lenet5"), {.training_batches = {6}});
  const Samples samples = make_samples(net.model, 6);
  const auto loss_of = [&](Range range) {
    return net.executor.evaluate(samples.batch(), net.parameters, net.statistics, range);
  };

  const tensor::Loss all = net.evaluate(samples.batch());
  const tensor::Loss first = loss_of({0, 2});
  const tensor::Loss second = loss_of({2, 6});

  EXPECT_GT(first.sum, 0.0);
  EXPECT_NEAR(first.sum + second.sum, all.sum, 1e-12 * all.sum);
  EXPECT_EQ(first.correct + second.correct, all.correct);
  EXPECT_EQ(loss_of({3, 3}).sum, 0.0);
}

// Every sample of the test set counts once, however many a rank computes at once.
TEST(BatchSizesTest, ATestSetIsJudgedOnceWhateverTheBatch) {
  Experiment experiment = test::small_experiment();
  experiment.train.max_steps = 1;
  experiment.optimizer.learning_rate = 1e-9;  // the same parameters for all
  experiment.data.test = 37;
  experiment.train.global_batch = 200;
  const EpochMetrics whole = test::train_on(1, experiment).metrics[0];
  for (const std::int64_t batch : {4, 24, 60}) {
    for (const int ranks : {1, 3}) {
      experiment.train.global_batch = batch;
      const EpochMetrics metrics = test::train_on(ranks, experiment).metrics[0];
      EXPECT_NEAR(metrics.test_loss, whole.test_loss, 1e-5) << batch << " on " << ranks;
      EXPECT_NEAR(metrics.accuracy, whole.accuracy, 1e-9) << batch << " on " << ranks;
    }
  }
}

TEST(ReusedMemoryTest, AllUsersHaveTheSameBlocks) {
  MemoryAccount account;
  AccountedMemory upstream(account);
  {
    ReusedMemory memory(&upstream);
    void* const large = memory.allocate(1000, 64);
    void* const small = memory.allocate(10, 64);
    EXPECT_NE(large, small);

    memory.rewind();

    EXPECT_EQ(memory.allocate(7, 64), small);
    EXPECT_EQ(memory.allocate(11, 64), large);
    EXPECT_EQ(account.in_use(), 1010U);
  }
  EXPECT_EQ(account.in_use(), 0U);
}

TEST(ReusedMemoryTest, AUserThatNeedsMoreIsGivenMore) {
  MemoryAccount account;
  AccountedMemory upstream(account);
  ReusedMemory memory(&upstream);
  void* const first = memory.allocate(100, 64);
  memory.deallocate(first, 100, 64);
  EXPECT_NE(memory.allocate(100, 64), first) << "not before the next user";

  memory.rewind();

  EXPECT_NE(memory.allocate(101, 64), first);
  EXPECT_EQ(account.in_use(), 301U);
  EXPECT_THROW((void)memory.allocate(1, 128), std::bad_alloc);
}

// Batches in micro-batches, and ranks that are slowed down on purpose.

// Without batch norm a batch is the sum of its micro-batches. 24 samples in micro-batches of 5 and
// 4 on one rank, of 2, 1 and (fewer samples than micro-batches in the last, short batch) none on
// three.
TEST(TrainerMicroBatchesTest, ABatchInMicroBatchesIsTheWholeOneToRounding) {
  Experiment whole = small_experiment();
  whole.train.max_steps = 9;
  Experiment micro_batches = whole;
  micro_batches.train.accumulate = 5;
  for (const int ranks : {1, 3}) {
    const auto expected = train_on(ranks, whole);
    const auto outcome = train_on(ranks, micro_batches);

    EXPECT_LE(relative_distance(outcome.parameters.at(0), expected.parameters.at(0)), 1e-5);
    EXPECT_EQ(outcome.summaries.at(0).samples, 200);
    EXPECT_EQ(outcome.summaries.at(0).global_bytes, expected.summaries.at(0).global_bytes);
  }
}

TEST(TrainerMicroBatchesTest, EverySchemeTakesPieces) {
  for (const char* scheme : {"lazy", "k_step", "cyclic"}) {
    Experiment experiment = small_experiment("resnet8");
    experiment.update.scheme = scheme;
    experiment.update.warmup_epochs = 0.0;
    experiment.train.accumulate = 2;
    EXPECT_EQ(train_on(2, experiment).summaries.at(0).steps, 5) << scheme;
  }
}

TEST(InjectionsTest, SayWhatIsSlowedDown) {
  Experiment experiment;
  transport::FabricOptions fabric;
  EXPECT_THAT(injections_of(experiment, fabric, 2), testing::IsEmpty());
  experiment.inject.slow_ranks = {{1, 1.0}, {3, 2.5}};
  fabric.injected_latency = std::chrono::microseconds(50);
  fabric.injected_bytes_per_second = 5e8;

  EXPECT_THAT(injections_of(experiment, fabric, 1),
              ElementsAre("rank 3 computes 2.5 times as slowly"));
  EXPECT_THAT(injections_of(experiment, fabric, 2),
              ElementsAre("rank 3 computes 2.5 times as slowly", "50 us of latency between nodes",
                          "0.5 GB/s between nodes"));
}

TEST(InjectionsTest, EveryOutputIsLabelled) {
  Experiment experiment = small_experiment();
  experiment.inject.slow_ranks = {{1, 1.5}};
  std::vector<std::string> notes;
  std::vector<Progress> progress;
  std::vector<RunSummary> ends;
  TrainerOptions options;
  options.observer = {
      .on_note = [&](const std::string& note) { notes.push_back(note); },
      .on_progress = [&](const Progress& now) { progress.push_back(now); },
      .on_end = [&](const RunSummary& summary) { ends.push_back(summary); },
  };
  rondo::test::World{2}.run(
      [&](transport::World& world) { EXPECT_TRUE(train(world, experiment, options).injected); });

  EXPECT_THAT(notes, testing::Contains("injected: rank 1 computes 1.5 times as slowly"));
  EXPECT_TRUE(progress.at(0).injected);
  EXPECT_THAT(ends.at(0).injected, ElementsAre("rank 1 computes 1.5 times as slowly"));
}

TEST(InjectionsTest, ASlowRankTrainsTheSameModel) {
  Experiment experiment = small_experiment();
  const auto expected = train_on(2, experiment);
  experiment.inject.slow_ranks = {{1, 2.0}};
  EXPECT_EQ(train_on(2, experiment).parameters, expected.parameters);
}

// After what it has computed, a rank that is slowed down waits at least so long; how much longer
// depends on the machine.
TEST(InjectionsTest, ASlowRankTakesAsManyTimesAsLong) {
  using Clock = std::chrono::steady_clock;
  rondo::test::World{1}.run([&](transport::World& world) {
    for (const double factor : {1.5, 3.0}) {
      Clock::time_point began;
      Clock::time_point computed;
      const int result = SlowRank(world, factor).slowed([&] {
        began = Clock::now();
        do {
          computed = Clock::now();
        } while (computed - began < std::chrono::milliseconds(20));
        return 7;
      });
      EXPECT_EQ(result, 7);
      EXPECT_GE(Clock::now() - began, factor * (computed - began));
    }
  });
}

TEST(InjectionsTest, RefuseRanksThatAreNotThere) {
  Experiment experiment = small_experiment();
  experiment.inject.slow_ranks = {{2, 2.0}};
  rondo::test::World{2}.run([&](transport::World& world) {
    EXPECT_THAT(rondo::test::error_text<ConfigError>([&] { train(world, experiment, {}); }),
                HasSubstr("inject.slow_ranks: there is no rank 2 among 2"));
  });
}

// From [optimizer] and [update] to a learning rate and a scheme.

TEST(UpdateTest, WarmUpIsInEpochsAndTheDecayEndsWithTheRun) {
  Experiment experiment;
  experiment.optimizer.learning_rate = 0.5;
  experiment.optimizer.warmup_epochs = 1.5;
  experiment.optimizer.final_learning_rate = 0.25;
  const sync::LearningRate rate = learning_rate_of(experiment, 10, 100);
  EXPECT_EQ(rate.warmup_steps, 15);
  EXPECT_EQ(rate.at(14), 0.5);
  EXPECT_DOUBLE_EQ(rate.at(100), 0.25);
}

TEST(UpdateTest, TheScheduleCanBeConstant) {
  Experiment experiment;
  experiment.optimizer.schedule = sync::Decay::constant;
  EXPECT_EQ(learning_rate_of(experiment, 10, 100).at(99), experiment.optimizer.learning_rate);
}

// Two dimensions are those of weights, also where a rank holds but a part of them.
TEST(UpdateTest, NormsAndBiasesAreTheVectorsOfAModel) {
  const ParameterLayout layout{.parameters = {{.name = "conv.weight", .shape = {4, 1, 1, 1}},
                                              {.name = "conv.bias", .shape = {4}, .offset = 4},
                                              {.name = "bn.weight", .shape = {4}, .offset = 8},
                                              {.name = "bn.bias", .shape = {4}, .offset = 12},
                                              {.name = "fc.weight", .shape = {1, 4}, .offset = 16},
                                              {.name = "fc.bias", .shape = {1}, .offset = 20}}};

  const std::vector<sync::ElementRange> ranges = norms_and_biases(layout);

  ASSERT_EQ(ranges.size(), 2U);
  EXPECT_EQ(ranges[0].offset, 4U);
  EXPECT_EQ(ranges[0].size, 12U);
  EXPECT_EQ(ranges[1].offset, 20U);
  EXPECT_EQ(ranges[1].size, 1U);
}

TEST(UpdateTest, MakesTheSchemeThatTheExperimentNames) {
  rondo::test::World{1}.run([](transport::World& world) {
    std::vector<float> parameters(3);
    std::vector<float> gradients(3);
    transport::Communicator& all = world.communicator();
    const sync::Replica replica{
        &world, parameters, gradients, {}, {{"layer", 0, 3, {nullptr, &all, &all}}}};
    const ParameterLayout layout{.parameter_count = 3};
    Experiment experiment;

    EXPECT_EQ(
        make_scheme(experiment, {.replica = replica, .layout = &layout})->replicated().at(0).data(),
        parameters.data());
    experiment.update.scheme = "gossip";
    EXPECT_THAT(
        rondo::test::error_text<ConfigError>([&] {
          static_cast<void>(make_scheme(experiment, {.replica = replica, .layout = &layout}));
        }),
        HasSubstr("update.scheme: no scheme is called gossip"));
  });
}

}  // namespace
}  // namespace rondo::train::batch_sizes_test
