// The limit of a rank's memory: what is counted, and what the error says.

#include <cstdint>
#include <memory_resource>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <rondo/tensor/engine.hpp>
#include <rondo/train/executor.hpp>

#include "executor/memory.hpp"
#include "train/error_text.hpp"
#include "train/experiments.hpp"
#include "train/outcome.hpp"

namespace rondo::train::memory_limit_test {
namespace {

using rondo::test::error_text;
using testing::AllOf;
using testing::HasSubstr;
using testing::StartsWith;
using testing::StrEq;

/// What training on one rank is answered with.
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

  EXPECT_THAT(answer, StrEq("train.memory_limit: layer conv1 wants 401 bytes, and 600 of the 1000 "
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
  EXPECT_THROW(account.take(11), ConfigError);
  EXPECT_THROW(account.take(SIZE_MAX), ConfigError);
  account.take(10);

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

  EXPECT_THAT(error_text<ConfigError>([&] { return account.take(2), 0; }),
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

  EXPECT_THAT(refusal(experiment), AllOf(StartsWith("train.memory_limit: "), HasSubstr(" wants ")));
}

// LeNet-5 has 61,706 parameters.
TEST(MemoryLimitTest, NamesTheArrayThatDoesNotFit) {
  Experiment experiment = test::small_experiment();
  experiment.train.memory_limit = 400'000;

  EXPECT_THAT(refusal(experiment),
              StartsWith("train.memory_limit: the array of gradients wants 246824 bytes, and "
                         "246824 of the 400000 allowed"));
}

TEST(MemoryLimitTest, TheOptimizersStateCounts) {
  Experiment experiment = test::small_experiment();
  const auto peak = [&] { return test::train_on(1, experiment).summaries[0].peak_bytes; };
  experiment.optimizer.momentum = 0.0;
  const std::uint64_t of_sgd = peak();  // keeps its momenta all the same
  experiment.optimizer.name = "adam";

  EXPECT_EQ(peak() - of_sgd, 246'824U);
}

}  // namespace
}  // namespace rondo::train::memory_limit_test
