// Memory: what the planner says, what the account has counted, what is allocated, and its limit.

#include <malloc.h>

#include <algorithm>
#include <cstdint>
#include <memory_resource>
#include <mutex>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <rondo/sync/update_scheme.hpp>
#include <rondo/tensor/data_type.hpp>
#include <rondo/tensor/engine.hpp>
#include <rondo/train/executor.hpp>
#include <rondo/train/plan.hpp>
#include <rondo/train/plan_best.hpp>
#include <rondo/transport/world.hpp>

#include "config/grid_choice.hpp"
#include "executor/memory.hpp"
#include "plan/layout_search.hpp"
#include "support/error_text.hpp"
#include "train/experiments.hpp"
#include "train/outcome.hpp"
#include "train/resumed_runs.hpp"
#include "trainer/prepare.hpp"

namespace rondo::train::memory_limit_test {
namespace {

using rondo::test::error_text;
using testing::HasSubstr;
using testing::StartsWith;

// Three numbers of one run: what the planner says that a rank needs, what the account of
// train.memory_limit has counted, and what is really allocated. They agree within 5 %.

constexpr double tolerance = 0.05;

/// Bytes that the process has from malloc(). 0 under the sanitizers, which have one of their own.
std::int64_t malloc_bytes() {
  const auto info = mallinfo2();
  return static_cast<std::int64_t>(info.uordblks + info.hblkhd);
}

struct Used {
  std::uint64_t of_a_rank = 0;  // by its account, the most
  std::uint64_t counted = 0;    // of all ranks
  std::int64_t allocated = 0;   // by all ranks
};

Model model_of_run(const Experiment& experiment) {
  return make_model(experiment.model.name, {}, experiment.data.classes);
}

/// The data set lies in the memory of every rank, and no account counts it.
std::int64_t dataset_bytes(const Experiment& experiment) {
  const std::int64_t image = model_of_run(experiment).input.image();
  return (experiment.data.training + experiment.data.test) * (image + 4);
}

/// Trains and evaluates; what is in use while all ranks still have everything.
Used used_by_a_run(int ranks, const Experiment& experiment) {
  Used used;
  std::mutex mutex;
  std::int64_t arenas = 0;
  const std::int64_t before = malloc_bytes();
  rondo::test::World{ranks}.run([&](transport::World& world) {
    RunLog log({}, world.rank());
    Trainer trainer(world, prepare_run(world, experiment), {}, log);
    trainer.join();
    while (!trainer.done()) trainer.run_epoch();
    {
      const std::lock_guard lock(mutex);
      const std::uint64_t peak = trainer.summary("").peak_bytes;
      used.of_a_rank = std::max(used.of_a_rank, peak);
      used.counted += peak;
      arenas += static_cast<std::int64_t>(world.arena().used_bytes());
    }
    world.communicator().barrier().wait();
    if (world.rank() == 0) {
      used.allocated = malloc_bytes() - before + arenas - ranks * dataset_bytes(experiment);
    }
    world.communicator().barrier().wait();
  });
  return used;
}

/// The same of a second run: oneDNN keeps the code that it has compiled in the first, some MB, for
/// the whole process, and no account counts that.
Used used_by(int ranks, const Experiment& experiment) {
  static_cast<void>(used_by_a_run(ranks, experiment));
  return used_by_a_run(ranks, experiment);
}

/// A step or two, and an evaluation of more samples than a step has.
Experiment short_run(const std::string& model, std::int64_t global_batch) {
  Experiment experiment = test::small_experiment(model, global_batch);
  experiment.data.training = 2 * global_batch;
  experiment.data.test = global_batch + 1;
  experiment.train.max_steps = 2;
  return experiment;
}

PlanOptions options_of(int ranks, const Experiment& experiment) {
  PlanOptions options = plan_options(experiment, model_of_run(experiment));
  options.ranks = ranks;
  return options;
}

void expect_agreement(std::uint64_t planned, const Used& used, const std::string& what) {
  const auto near = [](double value) { return tolerance * value; };
  const auto counted = static_cast<double>(used.of_a_rank);
  EXPECT_NEAR(static_cast<double>(planned), counted, near(counted)) << what;
  if (malloc_bytes() == 0) return;
  const auto all = static_cast<double>(used.counted);
  EXPECT_NEAR(static_cast<double>(used.allocated), all, near(all)) << what;
}

void expect_agreement_on_one_rank(const Experiment& experiment) {
  const Model model = model_of_run(experiment);

  const GridPlan planned = plan(model, Strategy::batch, options_of(1, experiment)).front();

  expect_agreement(planned.bytes_per_rank, used_by(1, experiment), model.name);
}

/// Checks the best plans of all grids.
void expect_agreement_on_grids(int ranks, Experiment experiment) {
  const Model model = model_of_run(experiment);
  int grids = 0;
  for (const BestPlan& plan : best_plans(model, options_of(ranks, experiment), FlopRate(5e10))) {
    if (!plan.refused.empty()) continue;
    experiment.grid = grid_keys(plan);
    expect_agreement(plan.bytes_per_rank, used_by(ranks, experiment),
                     model.name + "\n" + grid_section(plan));
    ++grids;
  }
  EXPECT_GT(grids, 1);
}

/// With one split for all layers that have it.
void expect_agreement_on_grid(int ranks, Experiment experiment, Strategy strategy, int pr,
                              const Experiment::Grid& grid) {
  const Model model = model_of_run(experiment);
  experiment.grid = grid;
  const std::vector<GridPlan> plans = plan(model, strategy, options_of(ranks, experiment));
  const auto planned = std::ranges::find(plans, pr, &GridPlan::pr);
  ASSERT_NE(planned, plans.end());

  expect_agreement(planned->bytes_per_rank, used_by(ranks, experiment),
                   model.name + " by " + std::string(name_of(strategy)));
}

/// Checks splits that no strategy has.
void expect_agreement_on_tiles(Experiment experiment, const Experiment::Grid& grid) {
  const Model model = model_of_run(experiment);
  const GridChoice choice = choose_grid(model, grid, 4, experiment.train.global_batch);
  experiment.grid = grid;
  KernelMemories kernels(1, experiment.train.convolution);

  const std::uint64_t planned =
      rank_bytes(kernels, model, choice.splits, choice.grid, options_of(4, experiment));

  expect_agreement(planned, used_by(4, experiment), model.name + " in tiles");
}

TEST(PlannedMemoryTest, OfLeNetInTiles) {
  expect_agreement_on_tiles(short_run("lenet5", 512), {.filter = 2, .height = 2});
  expect_agreement_on_tiles(short_run("lenet5", 512), {.channel = 2, .width = 2});
}

TEST(PlannedMemoryTest, OfLeNetOnOneRank) {
  expect_agreement_on_one_rank(short_run("lenet5", 512));
}

TEST(PlannedMemoryTest, OfLeNetOnGrids) { expect_agreement_on_grids(4, short_run("lenet5", 512)); }

TEST(PlannedMemoryTest, OfResNet20OnOneRank) {
  expect_agreement_on_one_rank(short_run("resnet20", 32));
}

TEST(PlannedMemoryTest, OfResNet20OnGrids) {
  expect_agreement_on_grids(4, short_run("resnet20", 64));
}

TEST(PlannedMemoryTest, OfResNet20InSpace) {
  const Experiment experiment = short_run("resnet20", 48);
  expect_agreement_on_grid(2, experiment, Strategy::domain, 2,
                           {.height = 2, .layers = {{"fc", "sample"}}});
}

TEST(PlannedMemoryTest, OfResNet20ByFilters) {
  const Experiment experiment = short_run("resnet20", 48);
  expect_agreement_on_grid(4, experiment, Strategy::grid, 2,
                           {.filter = 2, .layers = {{"*", "filter=2"}}});
}

TEST(PlannedMemoryTest, OfLeNetIntegrated) {
  expect_agreement_on_grid(4, short_run("lenet5", 512), Strategy::integrated, 2,
                           {.filter = 2, .layers = {{"conv*", "sample"}, {"*", "filter=2"}}});
}

/// One step, as updating 57 million parameters takes a while; 10 classes, as do the synthetic
/// images of 1,000.
Experiment one_step_of_alexnet() {
  Experiment experiment = short_run("alexnet", 4);
  experiment.data.training = 4;
  experiment.data.classes = 10;
  experiment.train.max_steps = 1;
  return experiment;
}

TEST(PlannedMemoryTest, OfAlexNetOnOneRank) { expect_agreement_on_one_rank(one_step_of_alexnet()); }

TEST(PlannedMemoryTest, OfAlexNetOnAGrid) {
  expect_agreement_on_grid(2, one_step_of_alexnet(), Strategy::integrated, 2,
                           {.filter = 2, .layers = {{"features.*", "sample"}, {"*", "filter=2"}}});
}

TEST(PlannedMemoryTest, OfABatchInPiecesAndOfAdam) {
  Experiment experiment = short_run("resnet20", 64);
  experiment.train.accumulate = 4;
  experiment.optimizer.name = OptimizerName::adam;
  expect_agreement_on_one_rank(experiment);
}

TEST(PlannedMemoryTest, OfBf16) {
  if (!tensor::computes_bf16()) GTEST_SKIP() << "this CPU does not compute bf16";
  // Twice the batch of the other tests: oneDNN's own objects are as large as in fp32.
  Experiment experiment = short_run("resnet20", 128);
  experiment.train.precision = tensor::DataType::bf16;
  expect_agreement_on_one_rank(experiment);
  expect_agreement_on_grids(4, experiment);
  expect_agreement_on_grid(4, experiment, Strategy::grid, 2,
                           {.filter = 2, .layers = {{"*", "filter=2"}}});
}

TEST(PlannedMemoryTest, OfGradientsSentAsBf16) {
  // With 32 images oneDNN's own objects, which nothing plans, are up to 5 % of the whole.
  Experiment experiment = short_run("resnet20", 64);
  experiment.train.reduce_precision = tensor::DataType::bf16;
  expect_agreement_on_one_rank(experiment);
  expect_agreement_on_grids(4, experiment);
}

// A short last batch has kernels of its own, in the memory of the full one.
TEST(PlannedMemoryTest, OfAnEpochWithAShortLastBatch) {
  Experiment experiment = short_run("resnet20", 32);
  experiment.data.training = 52;
  expect_agreement_on_one_rank(experiment);
  expect_agreement_on_grids(2, experiment);
}

// A scheme's memory is small beside the activations of ResNet-20, and large beside those of LeNet-5
// with few samples. There oneDNN's own objects are large as well, so that only counted memory is
// compared; SchemeMemoryTest of sync compares with what schemes allocate.

Experiment few_samples(const std::string& settings) {
  return test::with(short_run("lenet5", 4), settings);
}

void expect_plan_of(const std::string& settings) {
  const Experiment experiment = few_samples(settings);
  const auto plans = plan(model_of_run(experiment), Strategy::batch, options_of(2, experiment));
  const auto counted = static_cast<double>(used_by_a_run(2, experiment).of_a_rank);
  EXPECT_NEAR(static_cast<double>(plans.front().bytes_per_rank), counted, tolerance * counted)
      << settings;
}

// Also of the copy for checkpoints, of an outer optimizer with overlap, and of a warm-up. Where
// images are as many bytes as their network, ranks that step alone have a second stream.
TEST(PlannedMemoryTest, OfEveryScheme) {
  const std::string bf16 = "train.reduce_precision=bf16 update.scheme=";
  expect_plan_of(bf16 + "hierarchical");
  expect_plan_of(bf16 +
                 "k_step update.overlap_steps=1 update.outer_optimizer=adam "
                 "update.outer_rate=0.01");
  expect_plan_of(
      "update.scheme=cyclic update.warmup_epochs=0 train.global_batch=128 "
      "data.training=256");
  for (const sync::SchemeDescription& scheme : sync::schemes()) {
    const std::string usual = "update.lazy_layers=2 update.reduction_momentum=0.5 update.scheme=" +
                              std::string(scheme.name);
    expect_plan_of(usual + " update.warmup_epochs=0");
    expect_plan_of(usual + " checkpoint.every_epochs=1" +
                   (scheme.windows ? "" : " optimizer.name=adam"));
  }
}

/// Bytes that a limit would count more where checkpoints are wanted.
std::uint64_t counted_for_checkpoints(const std::string& settings) {
  const std::uint64_t without = used_by_a_run(2, few_samples(settings)).of_a_rank;
  return used_by_a_run(2, few_samples(settings + " checkpoint.every_epochs=1")).of_a_rank - without;
}

// The parameters, the model that was evaluated, and the state of updates: momenta, then what the
// scheme goes on with. LeNet-5 has no statistics.
TEST(PlannedMemoryTest, WhatASchemeSavesIsInTheCopy) {
  const ParameterLayout layout = layout_of(make_model("lenet5"));
  const std::uint64_t n = 4 * layout.parameter_count;
  const std::string k_step = "update.scheme=k_step";
  const std::string narrow = k_step + " update.overlap_steps=1 train.reduce_precision=bf16";
  EXPECT_EQ(counted_for_checkpoints(k_step), (3 + 1) * n);
  EXPECT_EQ(counted_for_checkpoints(k_step + " update.reduction_momentum=0.5"), (3 + 2) * n);
  EXPECT_EQ(counted_for_checkpoints(narrow + " update.reduction_momentum=0.5"), (3 + 5) * n);
  EXPECT_EQ(counted_for_checkpoints(narrow + " update.outer_optimizer=adam update.outer_rate=0.01"),
            (3 + 6) * n);
  const std::uint64_t lazy = 4 * (layout.blocks[0].size + layout.blocks[1].size);
  EXPECT_EQ(counted_for_checkpoints("update.scheme=lazy update.lazy_layers=2"), 3 * n + lazy);
}

// Ranks that all do the same have nothing to add up: shares are those of one rank of each replica.
TEST(PlannedMemoryTest, SharesOfTheOptimizerFollowWhoReducesALayer) {
  const Experiment experiment = few_samples("update.scheme=sharded");
  const Model model = model_of_run(experiment);
  const auto whole = static_cast<double>(4 * layout_of(model).parameter_count);
  const auto updates_with = [&](SplitKind kind, ProcessGrid grid) {
    const std::vector<LayerSplit> splits(model.layers.size(), LayerSplit{.kind = kind});
    const ParameterLayout layout = layout_of(model, splits, grid.pr, 0);
    return static_cast<double>(
        options_of(1, experiment)
            .update_bytes(layout, grid, slices_in_replica(model, splits, grid.pr)));
  };
  constexpr double lines = 64.0 * 5;  // one for each layer at most

  EXPECT_EQ(updates_with(SplitKind::replica, {.pr = 4, .pc = 1}), whole);
  EXPECT_NEAR(updates_with(SplitKind::replica, {.pr = 2, .pc = 2}), whole / 2, lines);
  EXPECT_NEAR(updates_with(SplitKind::sample, {.pr = 2, .pc = 2}), whole / 4, lines);
}

// The limit of a rank's memory: what is counted, and what the error says.

/// The answer to training on one rank.
std::string refusal(const Experiment& experiment) {
  std::string answer;
  rondo::test::World{1}.run([&](transport::World& world) {
    answer = error_text<ConfigError>([&] { return train(world, experiment, {}); });
  });
  return answer;
}

TEST(MemoryLimitTest, TheErrorSaysWhatIsWantedAndInUse) {
  MemoryAccount account(1000);
  AccountedMemory memory(account);
  const std::pmr::vector<char> first(600, &memory);

  const std::string answer = error_text<ConfigError>([&] {
    const MemoryScope scope(&memory, "layer conv1");
    return std::pmr::vector<char>(401, &memory);
  });

  EXPECT_THAT(answer,
              testing::StrEq("train.memory_limit: layer conv1 wants 401 bytes, and 600 of the 1000 "
                             "allowed to a rank are in use; start more ranks, split layers by "
                             "[grid], or lower train.global_batch"));
}

TEST(MemoryLimitTest, CountsWhatIsInUseAndTheMostThatWas) {
  MemoryAccount account(1000);
  AccountedMemory memory(account);
  {
    const std::pmr::vector<char> all(1000, &memory);
    EXPECT_EQ(account.in_use(), 1000U);
  }
  const std::pmr::vector<char> some(10, &memory);

  EXPECT_EQ(account.in_use(), 10U);
  EXPECT_EQ(account.peak(), 1000U);
}

TEST(MemoryLimitTest, WhatIsRefusedIsNotCounted) {
  MemoryAccount account(10);
  EXPECT_THROW(account.add(11), ConfigError);
  EXPECT_THROW(account.add(SIZE_MAX), ConfigError);
  account.add(10);
  EXPECT_EQ(account.peak(), 10U);
}

TEST(MemoryLimitTest, WhatUpstreamRefusesIsNotCounted) {
  MemoryAccount account;
  AccountedMemory memory(account, std::pmr::null_memory_resource());
  EXPECT_THROW((void)memory.allocate(8), std::bad_alloc);
  EXPECT_EQ(account.in_use(), 0U);
}

TEST(MemoryLimitTest, ScopesNest) {
  MemoryAccount account(1);
  AccountedMemory memory(account);
  const MemoryScope outer(&memory, "layer a");
  {
    const MemoryScope inner(&memory, "layer b");
  }
  EXPECT_THAT(error_text<ConfigError>([&] { return account.add(2), 0; }),
              HasSubstr("layer a wants"));
}

TEST(MemoryLimitTest, OtherMemoryTakesNoNoticeOfScopes) {
  EXPECT_NO_THROW(MemoryScope(std::pmr::new_delete_resource(), "layer a"));
}

TEST(MemoryLimitTest, NamesTheLayerWhoseOutputDoesNotFit) {
  MemoryAccount account(28 * 28 * 6 * 4);  // the first output, of one image
  AccountedMemory memory(account);
  tensor::Engine engine(1, &memory);
  const Model model = make_model("lenet5");
  std::vector<float> numbers(layout_of(model).parameter_count);

  EXPECT_THAT(error_text<ConfigError>([&] {
                const Executor executor(engine, model, {numbers, numbers, {}},
                                        {.training_batches = {1}, .evaluation_batch = 1});
                return 0;
              }),
              StartsWith("train.memory_limit: the output of layer pool1 wants 4704 bytes, and "
                         "18816 of the 18816 allowed"));
}

// A limit that nothing exceeds; without one, evaluation takes larger batches.
constexpr std::int64_t plenty = std::int64_t{1} << 40U;

TEST(MemoryLimitTest, ARunWithinTheLimitIsUnchanged) {
  Experiment experiment = test::small_experiment();
  experiment.train.memory_limit = plenty;
  const test::Outcome free = test::train_on(2, experiment);
  experiment.train.memory_limit = static_cast<std::int64_t>(free.summaries[0].peak_bytes);
  const test::Outcome limited = test::train_on(2, experiment);
  EXPECT_GT(limited.summaries[0].peak_bytes, 5 * free.layout.parameter_count);
  EXPECT_EQ(limited.summaries[0].peak_bytes, free.summaries[0].peak_bytes);
  EXPECT_EQ(limited.parameters, free.parameters);
}

TEST(MemoryLimitTest, OneByteLessIsTooLittle) {
  Experiment experiment = test::small_experiment();
  experiment.train.memory_limit = plenty;
  const test::Outcome free = test::train_on(1, experiment);
  experiment.train.memory_limit = static_cast<std::int64_t>(free.summaries[0].peak_bytes) - 1;
  EXPECT_THAT(refusal(experiment),
              testing::AllOf(StartsWith("train.memory_limit: "), HasSubstr(" wants ")));
}

// LeNet-5 has 61,706 parameters.
TEST(MemoryLimitTest, NamesTheArrayThatDoesNotFit) {
  Experiment experiment = test::small_experiment();
  experiment.train.memory_limit = 400'000;
  EXPECT_THAT(refusal(experiment),
              StartsWith("train.memory_limit: the array of gradients wants 246824 bytes, and "
                         "246824 of the 400000 allowed"));
}

TEST(MemoryLimitTest, TheSchemeIsNamedAndCounts) {
  Experiment experiment = test::small_experiment();
  experiment.train.memory_limit = plenty;
  const std::uint64_t synchronous = test::train_on(1, experiment).summaries[0].peak_bytes;
  experiment.update.scheme = "k_step";
  experiment.train.memory_limit = static_cast<std::int64_t>(synchronous) + 246'824;
  EXPECT_THAT(
      refusal(experiment),
      StartsWith("train.memory_limit: the update scheme \"k_step\" wants 493652 bytes, and "));
}

TEST(MemoryLimitTest, TheOptimizersStateCounts) {
  Experiment experiment = test::small_experiment();
  const auto peak = [&] { return test::train_on(1, experiment).summaries[0].peak_bytes; };
  experiment.optimizer.momentum = 0.0;
  const std::uint64_t of_sgd = peak();  // keeps its momenta all the same
  experiment.optimizer.name = OptimizerName::adam;
  EXPECT_EQ(peak() - of_sgd, 246'824U);
}

}  // namespace
}  // namespace rondo::train::memory_limit_test
