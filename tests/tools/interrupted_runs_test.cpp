// Runs that are killed, at whatever moment, and resumed: they end like one that was left alone.
//
// RONDO_KILLS says how often (8 if it is not set); RONDO_SEED begins another series of moments. A
// run is killed again and again until it ends, then the next begins, under the other scheme.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "support/program.hpp"
#include "support/scratch_folder.hpp"
#include "tools/runs.hpp"

namespace rondo::test::interrupted_runs_test {
namespace {

namespace fs = std::filesystem;

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;
using testing::AllOf;
using testing::AnyOf;
using testing::HasSubstr;

const char* const tiny_run = R"(
[data]
name = "synthetic"
training = 64
test = 16
[model]
name = "lenet5"
[train]
global_batch = 16
epochs = 6
log_every = 1
[optimizer]
learning_rate = 0.05
[checkpoint]
every_steps = 2
)";

int number_from(const char* name, int usual) {
  const char* const text = std::getenv(name);
  return text == nullptr ? usual : std::atoi(text);
}

std::vector<nlohmann::json> epochs_of(const fs::path& folder) {
  return events_in(contents(folder / "metrics.jsonl"), "epoch");
}

bool writes_checkpoint(const fs::path& folder) {
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder / "checkpoints", error)) {
    if (entry.path().extension() == ".unfinished") return true;
  }
  return false;
}

bool has_checkpoint(const fs::path& folder) {
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder / "checkpoints", error)) {
    const bool finished = entry.path().extension() != ".unfinished";
    if (finished && fs::exists(entry.path() / "manifest.json")) return true;
  }
  return false;
}

class InterruptedRunsTest : public testing::Test {
 protected:
  // A leak check at a program's end runs in a child of its own. A kill that meets this child leaves
  // its parent waiting without an end, so runs that are killed are not checked for leaks.
  InterruptedRunsTest() {
    scratch_.write("tiny.toml", tiny_run);
    const char* const options = std::getenv("ASAN_OPTIONS");
    const std::string without_leaks = std::string(options ? options : "") + ":detect_leaks=0";
    ::setenv("ASAN_OPTIONS", without_leaks.c_str(), 1);
  }

  [[nodiscard]] Words command(const fs::path& folder, const std::string& scheme,
                              const Words& more = {}) const {
    const Words k_step = {"--set", "update.period=3", "--set", "update.warmup_epochs=0"};
    const Words words = {"train",
                         scratch_.path() / "tiny.toml",
                         "-n",
                         "2",
                         "--threads",
                         "1",
                         "--out",
                         folder,
                         "--resume",
                         "auto",
                         "--set",
                         "update.scheme=" + scheme,
                         "--oversubscribe"};
    return rondo_command(joined(scheme == "k_step" ? joined(words, k_step) : words, more));
  }

  [[nodiscard]] fs::path folder(const std::string& name) const { return scratch_.path() / name; }

 private:
  ScratchFolder scratch_;
};

// Every third time in the middle of a checkpoint, if one comes before the moment is over.
void wait_for_moment(const Program& program, const fs::path& folder, std::mt19937& random,
                     milliseconds longest) {
  const bool in_checkpoint = random() % 3 == 0;
  const auto moment =
      Clock::now() + milliseconds(random() % static_cast<unsigned>(longest.count() + 1));
  while (Clock::now() < moment && !program.has_ended()) {
    if (in_checkpoint && writes_checkpoint(folder)) return;
    ::poll(nullptr, 0, 1);
  }
}

// A rank, all ranks or the launcher.
void kill_some(const Program& program, std::mt19937& random) {
  const auto victims = random() % 3;
  const std::vector<pid_t> ranks = program.children();
  if (victims == 0 || ranks.empty()) {
    program.send(SIGKILL);
  } else if (victims == 1) {
    ::kill(ranks[random() % ranks.size()], SIGKILL);
  } else {
    for (const pid_t rank : ranks) ::kill(rank, SIGKILL);
  }
}

TEST_F(InterruptedRunsTest, EndWithTheBitsOfARunThatWasLeftAlone) {
  const int kills = number_from("RONDO_KILLS", 8);
  const int seed = number_from("RONDO_SEED", 1);
  std::mt19937 random(static_cast<unsigned>(seed));
  milliseconds longest(0);  // that a run takes
  int killed = 0;
  for (int run = 0; killed < kills; ++run) {
    const std::string scheme = run % 2 == 0 ? "synchronous" : "k_step";
    const fs::path alone = folder("alone-" + scheme);
    if (!fs::exists(alone)) {
      const auto began = Clock::now();
      ASSERT_EQ(Program(command(alone, scheme)).wait().status, 0);
      longest = std::chrono::duration_cast<milliseconds>(Clock::now() - began);
    }

    const fs::path cut = folder("cut-" + std::to_string(run));
    int status = -1;
    for (int attempt = 0; status != 0; ++attempt) {
      const bool goes_on = has_checkpoint(cut);
      Program program(command(cut, scheme));
      if (attempt < 8 && killed < kills) {
        wait_for_moment(program, cut, random, longest);
        if (!program.has_ended()) {
          kill_some(program, random);
          ++killed;
        }
      }
      const Ended ended = program.wait();
      status = ended.status;
      ASSERT_THAT(status, AnyOf(0, 4, 128 + SIGKILL)) << ended.err;
      // Whoever was killed may not have said it yet.
      if (status == 0 && goes_on) {
        EXPECT_THAT(ended.out, HasSubstr("resumed from"));
      }
    }
    const auto expected = epochs_of(alone);
    const auto found = epochs_of(cut);
    ASSERT_EQ(found.size(), expected.size()) << "run " << run << ", seed " << seed;
    for (std::size_t i = 0; i < found.size(); ++i) {
      EXPECT_EQ(found[i]["parameter_hash"], expected[i]["parameter_hash"])
          << scheme << ", epoch " << i + 1 << " of run " << run << ", seed " << seed;
    }
  }
}

TEST_F(InterruptedRunsTest, Sigusr1ToOneRankLeavesACheckpointAndTheRunGoesOn) {
  const fs::path run = folder("run");
  Program program(command(run, "k_step",
                          {"--set", "checkpoint.every_steps=0", "--set", "train.epochs=100000"}));
  program.output_until("epoch 1/");
  ASSERT_FALSE(program.children().empty());
  ::kill(program.children().back(), SIGUSR1);
  while (!program.has_ended() && !has_checkpoint(run)) {
    ::poll(nullptr, 0, 1);
  }

  EXPECT_TRUE(has_checkpoint(run));
  EXPECT_FALSE(program.has_ended());
  program.send(SIGTERM);
  EXPECT_EQ(program.wait().status, 75);
}

// Ranks that step alone agree on nothing before the end of the epoch.
TEST_F(InterruptedRunsTest, SigtermWithinTheFirstEpochOfACyclicRunLeavesACheckpoint) {
  const fs::path run = folder("run");
  Program program(command(run, "cyclic",
                          {"--set", "checkpoint.every_steps=0", "--set", "data.training=8000",
                           "--set", "train.epochs=1000"}));
  program.output_until("epoch 1/");
  program.send(SIGTERM);

  const Ended ended = program.wait();
  EXPECT_EQ(ended.status, 75) << ended.err;
  EXPECT_TRUE(has_checkpoint(run));
}

// Rank 0 has no peer yet.
TEST_F(InterruptedRunsTest, Sigusr1BeforeARankHasJoinedEndsNothing) {
  const fs::path run = folder("run");
  std::string job = std::to_string(::getpid());  // no other test has it
  job.insert(0, 32 - job.size(), 'b');
  const auto rank = [&](const char* number) {
    return std::pair(
        command(run, "synchronous", {"--set", "checkpoint.every_steps=0"}),
        Environment{
            {"RONDO_COORDINATOR", "local:" + job}, {"RONDO_RANK", number}, {"RONDO_SIZE", "2"}});
  };
  const auto [words, first] = rank("0");
  Program waiting(words, first);
  while (!waiting.has_ended() && !waiting.handles(SIGUSR1)) {
    ::poll(nullptr, 0, 1);
  }
  waiting.send(SIGUSR1);
  Program peer(words, rank("1").second);

  EXPECT_EQ(peer.wait().status, 0);
  const Ended ended = waiting.wait();
  EXPECT_EQ(ended.status, 0) << ended.err;
  EXPECT_TRUE(has_checkpoint(run));
}

// Without a checkpoint "auto" begins a run: the same one, and in the place of no other.
TEST_F(InterruptedRunsTest, WithoutACheckpointOnlyTheSameTrainingBeginsAnew) {
  const fs::path run = folder("run");
  ASSERT_EQ(Program(command(run, "synchronous")).wait().status, 0);
  fs::remove_all(run / "checkpoints");
  fs::create_directories(run / "checkpoints" / "step-2.unfinished");
  const auto size = fs::file_size(run / "metrics.jsonl");

  for (const char* choice : {"grid.plan=given", "grid.plan=auto"}) {
    const Ended other =
        Program(command(run, "synchronous", {"--set", "train.seed=7", "--set", choice})).wait();
    EXPECT_EQ(other.status, 2);
    EXPECT_THAT(other.err, AllOf(HasSubstr("holds a run of another config.toml"),
                                 HasSubstr("train.seed: it is 7")));
    EXPECT_EQ(fs::file_size(run / "metrics.jsonl"), size);
  }
  const std::string weights = (run / "model.safetensors").string();
  const Ended from_weights =
      Program(command(run, "synchronous", {"--set", "model.weights=" + weights})).wait();
  EXPECT_EQ(from_weights.status, 2);
  EXPECT_THAT(from_weights.err, HasSubstr("model.weights: it is \"" + weights +
                                          "\", and was \"\" when the run began"));
  EXPECT_TRUE(fs::exists(run / "model.safetensors"));
  EXPECT_EQ(Program(command(run, "synchronous", {"--set", "checkpoint.keep=3"})).wait().status, 0);
}

TEST_F(InterruptedRunsTest, ResumingNeedsAFolder) {
  expect_refused(rondo({"train", folder("tiny.toml"), "--resume", "auto"}), 2,
                 "give it with --out");
}

}  // namespace
}  // namespace rondo::test::interrupted_runs_test
