// Runs that cannot be: every rank ends, with an error that says why.

#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <rondo/train/dataset.hpp>
#include <rondo/train/trainer.hpp>
#include <rondo/transport/world.hpp>

#include "support/scratch_folder.hpp"
#include "support/world.hpp"
#include "train/experiments.hpp"

namespace rondo::train::trainer_errors_test {
namespace {

using test::small_experiment;
using testing::HasSubstr;
using testing::ThrowsMessage;

/// Expects that training throws an `Error` with that text on every rank.
template <typename Error, typename Text>
void expect_on_all_ranks(int ranks, const Experiment& experiment, const Text& text,
                         const TrainerOptions& options = {}) {
  rondo::test::World{ranks}.run([&](transport::World& world) {
    EXPECT_THAT([&] { train(world, experiment, options); }, ThrowsMessage<Error>(text));
  });
}

TEST(TrainerErrorsTest, ABatchSmallerThanTheRanks) {
  expect_on_all_ranks<ConfigError>(3, small_experiment("lenet5", 2),
                                   HasSubstr("a batch of 2 is smaller than the ranks (3)"));
}

TEST(TrainerErrorsTest, DataThatIsNotThere) {
  Experiment experiment = small_experiment();
  experiment.data.name = "fashion-mnist";
  experiment.data.path = "/nonexistent";

  expect_on_all_ranks<DataError>(2, experiment, HasSubstr("/nonexistent"));
}

TEST(TrainerErrorsTest, AModelThatDoesNotExist) {
  expect_on_all_ranks<ConfigError>(2, small_experiment("lenet6"), HasSubstr("lenet6"));
}

TEST(TrainerErrorsTest, ARunFolderThatCannotBeMadeIsToldOnAllRanks) {
  const rondo::test::ScratchFolder scratch;
  const std::filesystem::path& folder = scratch.path();
  std::ofstream(folder / "file") << "in the way";
  TrainerOptions options;
  options.run_folder = folder / "file" / "run";

  expect_on_all_ranks<ConfigError>(2, small_experiment(),
                                   HasSubstr("file/run: the run folder cannot be made: "), options);
}

TEST(TrainerErrorsTest, ALossThatIsNotFiniteNamesItsStep) {
  Experiment experiment = small_experiment();
  experiment.optimizer.learning_rate = 1e30;
  const rondo::test::ScratchFolder scratch;
  TrainerOptions options;
  options.run_folder = scratch.path();

  expect_on_all_ranks<NumericError>(3, experiment, HasSubstr("NaN or Inf in step 2, first in "),
                                    options);

  std::ifstream stream(options.run_folder / "metrics.jsonl");
  std::string last;
  for (std::string line; std::getline(stream, line);) last = line;
  EXPECT_THAT(nlohmann::json::parse(last).at("reason"), HasSubstr("in step 2, first in "));
}

TEST(TrainerErrorsTest, AMetricsFileOnAFullDiskEndsAllRanksAlike) {
  const rondo::test::ScratchFolder scratch;
  TrainerOptions options;
  options.run_folder = scratch.path();
  std::filesystem::create_symlink("/dev/full", options.run_folder / "metrics.jsonl");

  expect_on_all_ranks<DataError>(2, small_experiment(), HasSubstr("No space left on device"),
                                 options);
}

/// Rank 3 of a grid of two groups throws `error` after a step, when the others go on.
template <typename Error>
void expect_on_all_ranks_of_a_grid(const Error& error) {
  Experiment experiment = small_experiment();
  experiment.grid.filter = 2;
  rondo::test::World{4}.run([&](transport::World& world) {
    TrainerOptions options;
    options.on_step = [&] {
      if (world.rank() == 3) throw error;
    };
    EXPECT_THROW(train(world, experiment, options), Error) << "rank " << world.rank();
  });
}

TEST(TrainerErrorsTest, AnErrorOfOneRankOfAGridEndsAllAlike) {
  expect_on_all_ranks_of_a_grid(DataError("x"));
  expect_on_all_ranks_of_a_grid(std::runtime_error("x"));
}

TEST(TrainerErrorsTest, ALossThatIsNotFiniteEndsAllRanksOfAGrid) {
  Experiment experiment = small_experiment();
  experiment.optimizer.learning_rate = 1e30;
  experiment.grid.filter = 2;

  expect_on_all_ranks<NumericError>(4, experiment, HasSubstr("NaN or Inf in step 2, first in "));
}

}  // namespace
}  // namespace rondo::train::trainer_errors_test
