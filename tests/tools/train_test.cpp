// `rondo train` as a program: a small run, and what goes wrong before and during it.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "support/program.hpp"
#include "support/scratch_folder.hpp"
#include "tools/runs.hpp"

namespace rondo::test::train_test {
namespace {

namespace fs = std::filesystem;

using testing::AllOf;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::SizeIs;

const std::string two_epochs = small_run() + R"(
epochs = 2
log_every = 2
[optimizer]
learning_rate = 0.05
)";

// A folder of its own with a configuration in it.
class TrainTest : public testing::Test {
 protected:
  TrainTest() { scratch_.write("experiment.toml", two_epochs); }

  [[nodiscard]] std::string config() const { return scratch_.path() / "experiment.toml"; }
  [[nodiscard]] std::string out() const { return scratch_.path() / "run"; }

  [[nodiscard]] Ended train(const Words& more) const { return rondo(words_of_train(more)); }
  [[nodiscard]] Words words_of_train(const Words& more) const {
    return joined({"train", config(), "--out", out(), "--threads", "1"}, more);
  }
  // A run that trains until somebody ends it.
  [[nodiscard]] std::vector<std::string> endless(const Words& more) const {
    return rondo_command(joined(words_of_train(more), {"--set", "train.epochs=100000"}));
  }
  // As a rank of two that `rondo run` starts.
  [[nodiscard]] Words under_run(const Words& more) const {
    return joined({"run", "-n", "2", "--", rondo_path()}, words_of_train(more));
  }

  // Files of the run's folder.
  [[nodiscard]] std::string file(const std::string& name) const {
    return contents(fs::path(out()) / name);
  }
  [[nodiscard]] bool has(const std::string& name) const {
    return fs::exists(fs::path(out()) / name);
  }
  void leave(const std::string& name, const std::string& text) const {
    fs::create_directory(out());
    std::ofstream(fs::path(out()) / name) << text;
  }
  [[nodiscard]] nlohmann::json first_event() const {
    return events_in(file("metrics.jsonl")).at(0);
  }

 private:
  ScratchFolder scratch_;
};

// Lines that are not the launcher's "rank r: pid ..." lines.
std::vector<std::string> complaints(const std::string& err) {
  std::vector<std::string> result;
  for (const std::string& line : lines(err)) {
    const bool about_launch = line.find(": pid ") != std::string::npos ||
                              line.find("not bound") != std::string::npos ||
                              line.find("ended with status") != std::string::npos;
    if (!about_launch) result.push_back(line);
  }
  return result;
}

std::vector<std::string> kinds_of_events(const std::string& text) {
  std::vector<std::string> kinds;
  for (const auto& event : events_in(text)) kinds.push_back(event["event"]);
  return kinds;
}

TEST_F(TrainTest, LeavesConfigurationMetricsAndModelInItsFolder) {
  const Ended ended = train({"-n", "2"});
  EXPECT_EQ(ended.status, 0) << ended.err;
  EXPECT_THAT(file("config.toml"), HasSubstr("weight_decay"));
  const auto events = kinds_of_events(file("metrics.jsonl"));
  EXPECT_EQ(events.front(), "start");
  EXPECT_EQ(events.back(), "end");
  EXPECT_EQ(std::ranges::count(events, "epoch"), 2);
  EXPECT_THAT(file("model.safetensors"), HasSubstr("\"conv1.weight\":{\"dtype\":\"F32\""));
}

// A single sample for two ranks has to be split.
TEST_F(TrainTest, WritesTheGridThatThePlannerChoseAndRepeatsTheRunFromIt) {
  const auto last_hash = [this](const std::string& folder) {
    return events_in(file(folder + "metrics.jsonl"), "epoch").back()["parameter_hash"];
  };
  const Ended ended = train({"-n", "2", "--set", "grid.plan=auto", "--set", "train.global_batch=1",
                             "--set", "train.max_steps=3"});
  ASSERT_EQ(ended.status, 0) << ended.err;
  EXPECT_THAT(file("config.toml"), AllOf(HasSubstr("plan = \"chosen\""), HasSubstr("conv1")));

  const std::string again = out() + "-again";
  const Ended repeated =
      rondo({"train", out() + "/config.toml", "--out", again, "--threads", "1", "-n", "2"});

  ASSERT_EQ(repeated.status, 0) << repeated.err;
  EXPECT_EQ(file("../run-again/config.toml"), file("config.toml"));
  EXPECT_TRUE(last_hash("").is_string());
  EXPECT_EQ(last_hash("../run-again/"), last_hash(""));
}

TEST_F(TrainTest, TrainsOnFakeNodesAndSaysWhatWasInjected) {
  const Ended ended =
      train({"-n", "2", "--fake-nodes", "2", "--fabric", "shm", "--latency-us", "3"});

  ASSERT_EQ(ended.status, 0) << ended.err;
  EXPECT_THAT(file("config.toml"), HasSubstr("fake_nodes = 2"));
  EXPECT_THAT(file("config.toml"), HasSubstr("latency_us = 3.0"));
  const auto start = first_event();
  EXPECT_EQ(start["nodes"], 2);
  EXPECT_THAT(start["route"].get<std::string>(), HasSubstr("injected: 3 us"));
  EXPECT_THAT(ended.out, HasSubstr("injected: 3 us"));
}

// They were said to be none.
TEST_F(TrainTest, SaysWhatTheLauncherHasInjected) {
  const Ended ended = rondo(joined({"run", "-n", "2", "--fake-nodes", "2", "--fabric", "shm",
                                    "--latency-us", "3", "--", rondo_path()},
                                   words_of_train({})));

  ASSERT_EQ(ended.status, 0) << ended.err;
  EXPECT_EQ(first_event()["injected"], nlohmann::json({"3 us of latency between nodes"}));
}

TEST_F(TrainTest, TakesFakeNodesFromTheConfiguration) {
  const Ended ended =
      train({"-n", "2", "--set", "transport.fake_nodes=2", "--set", "transport.fabric=shm"});
  ASSERT_EQ(ended.status, 0) << ended.err;
  EXPECT_EQ(first_event()["nodes"], 2);
}

TEST_F(TrainTest, SaysTheSameNumberOfEpochsEverywhere) {
  const Ended ended = train({"-n", "1", "--set", "train.epochs=90", "--set", "train.max_steps=6"});
  EXPECT_THAT(lines(ended.out), Contains(HasSubstr("epoch 1/2  step 4/4")));
  EXPECT_THAT(lines(ended.out), Contains(HasSubstr("epoch 1/2: loss")));
  EXPECT_THAT(ended.out, testing::Not(HasSubstr("/90")));
}

TEST_F(TrainTest, WritesTheMetricsAndNothingElseToStdoutAsJson) {
  const Ended ended = train({"-n", "2", "--format", "json"});
  EXPECT_EQ(ended.status, 0) << ended.err;
  EXPECT_EQ(ended.out, file("metrics.jsonl"));
  EXPECT_THAT(ended.err, HasSubstr("epoch 2/2"));
}

// The lines of the earlier part came again, and with them its end.
TEST_F(TrainTest, WritesOfAResumedRunOnlyWhatItAddsAsJson) {
  const Ended first = train({"-n", "2", "--set", "checkpoint.every_epochs=1"});
  ASSERT_EQ(first.status, 0) << first.err;

  const Ended refused = train(
      {"-n", "2", "--resume", "auto", "--format", "json", "--set", "optimizer.learning_rate=0.2"});
  EXPECT_EQ(refused.status, 2);
  EXPECT_EQ(refused.out, "");

  const Ended longer = train({"-n", "2", "--resume", "auto", "--format", "json", "--set",
                              "checkpoint.every_epochs=1", "--set", "train.epochs=3"});
  ASSERT_EQ(longer.status, 0) << longer.err;
  const auto events = kinds_of_events(longer.out);
  EXPECT_EQ(events.front(), "resume");
  EXPECT_EQ(std::ranges::count(events, "epoch"), 1);
  EXPECT_EQ(events.back(), "end");
  EXPECT_THAT(file("metrics.jsonl"), testing::EndsWith(longer.out));
}

// A line of progress that cannot be written must not end the training.
TEST_F(TrainTest, TrainsWhereItsWordsAreLost) {
  const Ended ended =
      rondo_redirected("2>/dev/full", words_of_train({"-n", "2", "--format", "json"}));
  EXPECT_EQ(ended.status, 0);
  EXPECT_THAT(kinds_of_events(ended.out), Contains("end"));
  EXPECT_TRUE(has("model.safetensors"));
}

// The model is there, and the message has the reason of the first write that failed. The next file
// that is opened must not take the number of a closed stream: what is printed would go into it.
TEST_F(TrainTest, TrainsAndFailsWhereItsOutputIsLostOrClosed) {
  for (const auto& [where, reason] :
       {std::pair{">/dev/full", "No space left on device"}, {">&-", "Bad file descriptor"}}) {
    fs::remove_all(out());
    const Ended ended = rondo_redirected(where, words_of_train({"-n", "2"}));
    EXPECT_EQ(ended.status, 1);
    EXPECT_THAT(complaints(ended.err),
                Contains(std::string("rondo: rank 0: cannot write to standard output: ") + reason));
    EXPECT_TRUE(has("model.safetensors"));
  }
}

TEST_F(TrainTest, IsARankUnderRondoRun) {
  const Ended ended = rondo(under_run({"--format", "json"}));
  EXPECT_EQ(ended.status, 0) << ended.err;
  EXPECT_EQ(nlohmann::json::parse(lines(ended.out).front())["ranks"], 2);
}

TEST_F(TrainTest, NothingIsLeftOfARunThatHasCompleted) {
  ASSERT_EQ(train({"-n", "2"}).status, 0);
  const std::string metrics = file("metrics.jsonl");

  const Ended again = train({"-n", "2", "--resume", "auto"});
  EXPECT_EQ(again.status, 0) << again.err;
  EXPECT_THAT(lines(again.err),
              ElementsAre("rondo: " + out() + ": the run has completed; nothing is left to do"));
  const Ended as_ranks = rondo(under_run({"--resume", "auto"}));
  EXPECT_EQ(as_ranks.status, 0) << as_ranks.err;
  EXPECT_THAT(as_ranks.err, HasSubstr("nothing is left to do"));
  const Ended longer = train({"-n", "2", "--resume", "auto", "--set", "train.epochs=3"});
  EXPECT_EQ(longer.status, 2);
  EXPECT_THAT(longer.err, HasSubstr("holds a run that has completed, and no checkpoint"));
  EXPECT_EQ(file("metrics.jsonl"), metrics);
}

// Behind a setting "config is required", it said: the setting took the file, too.
TEST_F(TrainTest, TakesSettingsBeforeAndBehindTheFile) {
  const Words settings = {"-n", "1", "--set", "train.epochs=1", "--set", "train.seed=7"};
  const Words before = joined({"train"}, joined(settings, {config(), "--out", out()}));
  for (const Words& words : {words_of_train(settings), joined(before, {"--threads", "1"})}) {
    fs::remove_all(out());
    const Ended ended = rondo(words);
    EXPECT_EQ(ended.status, 0) << ended.err;
    EXPECT_THAT(file("config.toml"), AllOf(HasSubstr("epochs = 1"), HasSubstr("seed = 7")));
  }
}

// The launcher reads it, and then every rank.
TEST_F(TrainTest, RefusesAConfigurationThatCanBeReadOnlyOnce) {
  expect_refused(rondo({"train", "/dev/null", "--out", out()}), 2,
                 "/dev/null: every rank reads the configuration");
}

// A run that a mistake ends, the status, and the line that says so once for all ranks.
struct EndedRun {
  Words arguments;
  int status;
  const char* said;
};

// LeNet-5's parameters take 241 KiB, and its gradients as many.
const std::vector<EndedRun> ended_runs = {
    {{"-n", "2", "--memory-limit", "400KiB"},
     2,
     "train.memory_limit: the array of gradients wants 246824 bytes, and 246824 of the "
     "409600 allowed to a rank are in use"},
    {{"-n", "2", "--set", "data.name=fashion-mnist", "--set", "data.path=\"/no/such/folder\"",
      "--set", "data.training=10000", "--set", "data.test=1000"},
     3,
     "/no/such/folder"},
    {{"-n", "2", "--set", "data.name=fashion-mnist"},
     2,
     "data.training: 128 has no effect with data.name"},
    {{"-n", "2", "--set", "train.accumulate=17"},
     2,
     "train.accumulate: 17 micro-batches are more than the 16 samples"},
    {{"-n", "2", "--resume", "/no/such/run"},
     3,
     "/no/such/run: there is no such folder; give the folder of a run"},
    {{"-n", "2", "--resume", "/proc/version"},
     3,
     "/proc/version: is a file, and a checkpoint is a folder"},
    {{"--resume", ""}, 2, "--resume: is empty"},
    {{"-n", "3", "--set", "train.global_batch=2"}, 2, "global_batch"},
    {{"-n", "2", "--set", "data.decoder_cpus=1023"},
     2,
     "data.decoder_cpus: none of these CPUs may be used"},
    {{"-n", "2", "--set", "transport.allreduce=bogus"},
     2,
     "--set transport.allreduce=bogus: transport.allreduce: "},
    {{"-n", "2", "--set", "inject.slow_ranks={'7'=2.0}"},
     2,
     "inject.slow_ranks: there is no rank 7 among 2"},
    {{"-n", "2", "--fabric", "shm"}, 2, "add --fake-nodes 2"},
    // By the launcher, before any rank starts.
    {{"-n", "2", "--set", "train.epoch=1"}, 2, "did you mean 'epochs'?"},
    {{"-n", "2", "--set", "transport.fabric=myrinet"},
     2,
     "transport.fabric: 'myrinet' is none of auto, tcp, ucx, "},
    {{"-n", "2", "--set", "optimizer.learning_rate=1e30"}, 5, "step"}};

// Where the run has not begun, nothing is left, so that the folder can be taken again.
TEST_F(TrainTest, SaysAMistakeOnceAndLeavesNothing) {
  for (const auto& [arguments, status, said] : ended_runs) {
    const Ended ended = train(arguments);
    EXPECT_EQ(ended.status, status) << said;
    EXPECT_THAT(complaints(ended.err), ElementsAre(HasSubstr(said)));
    EXPECT_EQ(fs::exists(out()), status == 5) << said;
    fs::remove_all(out());
  }
}

TEST_F(TrainTest, TrainsWithinTheMemoryLimit) {
  const Ended ended = train({"-n", "1", "--set", "train.max_steps=1", "--memory-limit", "64MiB"});
  ASSERT_EQ(ended.status, 0) << ended.err;
  const auto end = nlohmann::json::parse(lines(file("metrics.jsonl")).back());
  EXPECT_LE(end["peak_bytes"], 64 << 20);
  EXPECT_GT(end["peak_bytes"], 2 * 246824);
  EXPECT_THAT(file("config.toml"), HasSubstr("memory_limit = 67108864"));
}

// Another rank may have more cores, so that rank 0 may have nothing to say.
TEST_F(TrainTest, ARankSaysThatItHasFewerCoresThanThreads) {
  const Ended ended = rondo({"train", "--threads", "4096", config()},
                            {{"RONDO_COORDINATOR", "local:" + std::string(32, 'a')},
                             {"RONDO_RANK", "1"},
                             {"RONDO_LOCAL_RANK", "1"},
                             {"RONDO_SIZE", "2"}});
  EXPECT_EQ(ended.status, 2);
  EXPECT_THAT(lines(ended.err),
              ElementsAre(HasSubstr("rondo: rank 1: 4096 threads were asked for")));
}

// It was refused by the rank, which had no --oversubscribe of its own.
TEST_F(TrainTest, TakesTheThreadsOfALauncherThatMayOversubscribe) {
  const long threads = sysconf(_SC_NPROCESSORS_ONLN) + 1;
  const Ended ended =
      rondo({"run", "-n", "1", "--threads", std::to_string(threads), "--oversubscribe", "--",
             rondo_path(), "train", "--out", out(), "--set", "train.max_steps=1", config()});
  ASSERT_EQ(ended.status, 0) << ended.err;
  EXPECT_EQ(first_event()["threads"], threads);
}

TEST_F(TrainTest, RefusesAFolderThatCannotBeMade) {
  expect_refused(rondo({"train", "-n", "2", "--out", config() + "/below", config()}), 2,
                 "cannot make the run folder");
}

TEST_F(TrainTest, RefusesTheFolderOfAnotherRun) {
  leave("metrics.jsonl", "{}\n");
  expect_refused(train({"-n", "2"}), 2, "choose another folder, or remove it");
  EXPECT_EQ(file("metrics.jsonl"), "{}\n");
  fs::remove_all(out());

  leave("config.toml", "# mine\n");
  EXPECT_EQ(train({"-n", "1"}).status, 2);
  EXPECT_EQ(file("config.toml"), "# mine\n");
}

// The launcher took a log without its first line for that of a run which had never begun.
TEST_F(TrainTest, LeavesItsFilesAlsoIfTheLogIsEmptiedMeanwhile) {
  Program program(endless({"-n", "1"}));
  program.output_until("epoch 2/");
  fs::resize_file(fs::path(out()) / "metrics.jsonl", 0);
  program.send(SIGTERM);

  EXPECT_EQ(program.wait().status, 75);
  EXPECT_THAT(file("metrics.jsonl"), HasSubstr("\"event\":\"end\""));
  EXPECT_THAT(file("config.toml"), HasSubstr("epochs = 100000"));
}

// SIGXFSZ ended it, without a word, and half a file was left.
TEST_F(TrainTest, SaysThatTheLimitOfFileSizesIsTooLow) {
  const Words limited = {"sh", "-c", "ulimit -f 1; exec \"$@\"", "sh", rondo_path()};

  const Ended ended = Program(joined(limited, words_of_train({"-n", "1"}))).wait();

  EXPECT_EQ(ended.status, 3);
  EXPECT_THAT(lines(ended.err),
              ElementsAre(AllOf(HasSubstr("config.toml"), HasSubstr("File too large"))));
  EXPECT_FALSE(fs::exists(out()));
}

// They were replaced by those of the run that was refused.
TEST_F(TrainTest, LeavesTheFlightRecordsOfACrashWhenItIsRefused) {
  const Ended first = train({"-n", "2", "--set", "checkpoint.every_epochs=1"});
  ASSERT_EQ(first.status, 0) << first.err;
  leave("flight-rank0.json", "of a crash");

  const Ended refused =
      train({"-n", "2", "--resume", "auto", "--set", "optimizer.learning_rate=0.2"});

  EXPECT_EQ(refused.status, 2);
  EXPECT_EQ(file("flight-rank0.json"), "of a crash");
  EXPECT_FALSE(has("flight-rank1.json"));
}

TEST_F(TrainTest, LeavesWhatWasInTheFolderBeforeWhenItIsRefused) {
  leave("notes.txt", "mine");
  const Ended ended = train({"-n", "2", "--memory-limit", "400KiB"});
  EXPECT_EQ(ended.status, 2);
  EXPECT_EQ(file("notes.txt"), "mine");
  EXPECT_EQ(std::distance(fs::directory_iterator(out()), {}), 1);
}

// Once for all ranks, and nothing is left.
TEST_F(TrainTest, SaysAMistakeOnceUnderRondoRun) {
  for (const Words& wrong : {Words{"--set", "train.epoch=1"}, {"--memory-limit", "400KiB"}}) {
    const Ended ended = rondo(under_run(wrong));
    EXPECT_EQ(ended.status, 2) << ended.err;
    EXPECT_THAT(complaints(ended.err), ElementsAre(HasSubstr("train.")));
    EXPECT_FALSE(fs::exists(out()));
  }
}

TEST_F(TrainTest, EndsWhenARankIsKilledAndNamesIt) {
  Program program(endless({"-n", "2"}));
  program.output_until("epoch 2/");
  const auto ranks = program.children();
  ASSERT_THAT(ranks, SizeIs(2));

  kill(ranks[1], SIGKILL);

  const Ended ended = program.wait();
  EXPECT_EQ(ended.status, 128 + SIGKILL);
  EXPECT_THAT(ended.err, HasSubstr("rank 1 (pid " + std::to_string(ranks[1]) +
                                   ") was ended by signal 9 (Killed)"));
  EXPECT_THAT(ended.err, HasSubstr("rondo: rank 0: "));
  EXPECT_EQ(nlohmann::json::parse(file("flight-rank1.json"))["pid"], ranks[1]);
  EXPECT_EQ(nlohmann::json::parse(file("flight-rank0.json"))["failure"]["kind"], "peer lost");
}

// As another launcher would pass the signal on.
TEST_F(TrainTest, ARankThatGetsSigusr2WritesItsFlightRecordAndGoesOn) {
  Program program(endless({"-n", "2"}));
  program.output_until("epoch 2/");
  const auto ranks = program.children();
  ASSERT_THAT(ranks, SizeIs(2));

  kill(ranks[1], SIGUSR2);
  const std::string errors = program.errors_until("the flight record is in");

  EXPECT_THAT(errors, HasSubstr("rondo: rank 1: the flight record is in"));
  EXPECT_THAT(program.children(), SizeIs(2));
  EXPECT_EQ(nlohmann::json::parse(file("flight-rank1.json"))["reason"], "asked for");
}

// A signal may come in the middle of a kernel, whose stack pointer may point into the heap.
TEST_F(TrainTest, TrainsThroughSignalsAtAnyMoment) {
  Program program(rondo_command({"train", "-n", "1", "--threads", "1", "--out", out(), "--set",
                                 "train.epochs=120", config()}));
  program.output_until("epoch 2/");
  const auto ranks = program.children();
  ASSERT_THAT(ranks, SizeIs(1));

  // Not to the end: a rank that has done its work is ended by the signal.
  for (int epoch = 3; epoch <= 100; ++epoch) {
    kill(ranks[0], SIGUSR2);
    program.output_until("epoch " + std::to_string(epoch) + "/");
  }

  const Ended ended = program.wait();
  EXPECT_EQ(ended.status, 0);
}

// The signals that this thread blocks, as SigBlk of its status has them: a bit for each.
unsigned long long blocked_by(const fs::path& thread) {
  std::ifstream status(thread / "status");
  std::string word;
  while (status >> word && word != "SigBlk:") {
  }
  unsigned long long blocked = 0;
  status >> std::hex >> blocked;
  return blocked;
}

// OpenMP's threads run kernels, too, and may be made anew at any time. The first thread lets
// signals in between two steps.
TEST_F(TrainTest, LeavesTheSignalsOfARunToItsFirstThread) {
  Program program(rondo_command({"train", "-n", "1", "--threads", "2", "--oversubscribe", "--out",
                                 out(), "--set", "train.epochs=100000", config()}));
  program.output_until("epoch 2/");
  const auto ranks = program.children();
  ASSERT_THAT(ranks, SizeIs(1));
  const std::string rank = std::to_string(ranks[0]);

  int others = 0;
  for (const auto& thread : fs::directory_iterator("/proc/" + rank + "/task")) {
    if (thread.path().filename() == rank) continue;
    const unsigned long long blocked = blocked_by(thread.path());
    if (!fs::exists(thread.path())) continue;  // it has ended
    ++others;
    for (const int signal : {SIGUSR1, SIGUSR2, SIGTERM}) {
      EXPECT_NE(blocked >> static_cast<unsigned>(signal - 1) & 1U, 0U) << signal;
    }
  }
  EXPECT_GT(others, 0);
}

}  // namespace
}  // namespace rondo::test::train_test
