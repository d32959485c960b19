// The folder of a run, in which another run may write, or in which a user's files may lie.

#include "train/training.hpp"

#include <array>
#include <barrier>
#include <cstddef>
#include <exception>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <rondo/train/run_directory.hpp>

#include "files.hpp"
#include "support/error_text.hpp"
#include "support/scratch_folder.hpp"

namespace rondo::tools::run_folder_test {
namespace {

namespace fs = std::filesystem;

using testing::HasSubstr;
using train::RunDirectory;

class RunFolderTest : public testing::Test {
 protected:
  [[nodiscard]] fs::path out() const { return scratch_.path() / "run"; }

  // As the trainer of a run does that has not written the first line of its log yet.
  void begin_another_run() {
    fs::create_directory(out());
    std::ofstream(out() / "config.toml") << to_toml(experiment_);
    std::ofstream(out() / "metrics.jsonl") << "";
    lock_.emplace(out());
    ASSERT_FALSE(lock_->is_in_use());
  }

  const train::Experiment experiment_ = {};

 private:
  rondo::test::ScratchFolder scratch_;
  std::optional<train::DirectoryLock> lock_;
};

TEST_F(RunFolderTest, TakesWithItWhatARefusedRunHasWritten) {
  {
    const RunDirectory folder(out(), experiment_);
    std::ofstream(out() / "metrics.jsonl") << "";
  }

  EXPECT_FALSE(fs::exists(out()));
}

TEST_F(RunFolderTest, LeavesTheFilesOfARunThatHasJustBegun) {
  begin_another_run();

  {
    const RunDirectory second(out(), experiment_);
  }

  EXPECT_TRUE(fs::exists(out() / "metrics.jsonl"));
  EXPECT_TRUE(fs::exists(out() / "config.toml"));
}

// Both have found no folder.
TEST_F(RunFolderTest, LeavesTheFilesOfARunThatHasBegunMeanwhile) {
  std::optional<RunDirectory> second(std::in_place, out(), experiment_);
  fs::remove_all(out());
  begin_another_run();

  second.reset();

  EXPECT_TRUE(fs::exists(out() / "metrics.jsonl"));
  EXPECT_TRUE(fs::exists(out() / "config.toml"));
}

TEST_F(RunFolderTest, LeavesAnEmptyLogThatWasThereBefore) {
  fs::create_directory(out());
  std::ofstream(out() / "metrics.jsonl") << "";

  {
    const RunDirectory folder(out(), experiment_);
  }

  EXPECT_TRUE(fs::exists(out() / "metrics.jsonl"));
  EXPECT_FALSE(fs::exists(out() / "config.toml"));
}

TEST_F(RunFolderTest, ResumesNothingInThePlaceOfAnotherConfigurationOrLog) {
  for (const auto& [name, text, said] :
       {std::tuple{"config.toml", "# mine\n", "already holds another config.toml"},
        {"metrics.jsonl", "{\"my\":\"log\"}\n", "already holds a run's metrics.jsonl"}}) {
    fs::remove_all(out());
    fs::create_directory(out());
    std::ofstream(out() / name) << text;

    EXPECT_THAT(rondo::test::error_text<train::ConfigError>(
                    [&] { RunDirectory(out(), experiment_, "auto"); }),
                HasSubstr(said));
    EXPECT_EQ(read_file(out() / name), text);
  }
}

TEST_F(RunFolderTest, IsThatOfTheCheckpointHoweverThisIsNamed) {
  const fs::path checkpoint = out() / "checkpoints" / "step-3";
  fs::create_directories(checkpoint);
  fs::create_directory_symlink(checkpoint, out() / "latest");
  for (const fs::path& named :
       {out(), checkpoint, checkpoint / "", checkpoint / ".", out() / "latest"}) {
    TrainRequest request;
    request.resume = named;

    EXPECT_TRUE(fs::equivalent(folder_asked_for(request), out())) << named;
  }
}

// A bare word among the options would be taken for one of them.
TEST_F(RunFolderTest, RanksGetAConfigurationWhoseNameBeginsWithAHyphen) {
  TrainRequest request;
  request.config = "-c.toml";
  const RunDirectory folder(out(), experiment_);

  const std::vector<std::string> command = training_job(request, {}, folder.path()).command;

  ASSERT_GE(command.size(), 2U);
  EXPECT_EQ(command[command.size() - 2], "--");
  EXPECT_EQ(command.back(), "-c.toml");
}

TEST_F(RunFolderTest, LeavesASymbolicLinkThatNamesNothing) {
  fs::create_symlink("nothing", out());

  EXPECT_THAT(
      rondo::test::error_text<train::ConfigError>([&] { RunDirectory(out(), experiment_); }),
      HasSubstr("cannot make the run folder"));
  EXPECT_TRUE(fs::is_symlink(out()));
}

// As a rotation of logs does it by copying, or a user by mistake.
TEST_F(RunFolderTest, LeavesTheFilesOfARunThatHasLostItsLog) {
  const fs::path log = out() / "metrics.jsonl";
  for (const std::string left : {"nothing", "", "{\"event\":\"end\"}\n"}) {
    {
      const RunDirectory launcher(out(), experiment_);
      const RunDirectory rank_0(out(), experiment_);
      std::ofstream(log) << "{\"event\":\"start\"}\n";
      RunDirectory::record(out(), experiment_);
      std::ofstream(log) << left;
      if (left == "nothing") fs::remove(log);
    }

    EXPECT_EQ(fs::exists(log), left != "nothing") << left;
    EXPECT_EQ(read_file(out() / "config.toml"), to_toml(experiment_)) << left;
    fs::remove_all(out());
  }
}

// Each finds no folder, or one without a config.toml.
TEST_F(RunFolderTest, LetsOneOfTwoThatBeginAtOnceGoOn) {
  train::Experiment another;
  another.train.seed = 2;
  const std::array<const train::Experiment*, 2> experiments = {&experiment_, &another};
  for (int round = 0; round < 100; ++round) {
    std::array<std::optional<RunDirectory>, 2> folders;
    std::array<std::string, 2> errors;
    std::barrier begin(2);
    const auto make = [&](std::size_t run) {
      begin.arrive_and_wait();
      try {
        folders[run].emplace(out(), *experiments[run]);
      } catch (const std::exception& error) {
        errors[run] = error.what();
      }
    };
    std::thread other(make, 1);
    make(0);
    other.join();

    const std::size_t first = folders[0] ? 0 : 1;
    ASSERT_TRUE(folders[first]) << errors[0] << "; " << errors[1];
    ASSERT_THAT(errors[1 - first], HasSubstr("already holds another config.toml"));
    ASSERT_EQ(read_file(out() / "config.toml"), to_toml(*experiments[first]));
    folders[first].reset();
    // The folder may have been made by the one that was refused, which could not remove it.
    ASSERT_FALSE(fs::exists(out() / "config.toml"));
    fs::remove_all(out());
  }
}

}  // namespace
}  // namespace rondo::tools::run_folder_test
