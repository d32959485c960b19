// The command line as a whole, and `rondo info`.

#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/program.hpp"
#include "support/scratch_folder.hpp"
#include "tools/runs.hpp"

namespace rondo::test::command_line_test {
namespace {

using testing::HasSubstr;

// Every mistake on the command line is one line on stderr and status 2.

TEST(CommandLineTest, PrintsItsVersionAndTheSubcommands) {
  const Ended version = rondo({"--version"});
  EXPECT_EQ(version.status, 0);
  EXPECT_THAT(version.out, testing::StartsWith("rondo 0."));
  const Ended help = rondo({"--help"});
  EXPECT_EQ(help.status, 0);
  EXPECT_THAT(help.out, HasSubstr("run"));
}

TEST(CommandLineTest, HelpHasTheRanksOfEachCommand) {
  const auto help = [](const Words& command) { return rondo(joined(command, {"--help"})).out; };
  EXPECT_THAT(help({"train"}), HasSubstr("Ranks to start (default: one per NUMA domain)"));
  EXPECT_THAT(help({"bench", "barrier"}), HasSubstr("(default: one per NUMA domain)"));
  EXPECT_THAT(help({"eval"}), HasSubstr("Ranks to start (default: 1)"));
  EXPECT_THAT(help({"bench", "model"}), HasSubstr("Ranks to start (default: 1)"));
  for (const char* name : {"latency", "bandwidth", "token", "tune"}) {
    EXPECT_THAT(help({"bench", name}), HasSubstr("Ranks to start (default: 2)"));
  }
}

// The status was 0, and nothing was said.
TEST(CommandLineTest, FailsWhereItsOutputIsLost) {
  const std::vector<Words> commands = {
      {"--help"}, {"--version"}, {"train", "--help"}, {"init", "lenet5"}, {"info"}};
  for (const Words& arguments : commands) {
    expect_refused(rondo_redirected(">/dev/full", arguments), 1,
                   "rondo: cannot write to standard output: No space left on device");
  }
  expect_refused(rondo_redirected(">&-", {"init", "lenet5"}), 1,
                 "rondo: cannot write to standard output: Bad file descriptor");
}

// It was aborted: the words could not be written.
TEST(CommandLineTest, HasItsStatusWhereItsErrorsAreLost) {
  for (const char* lost : {"2>/dev/full", "2>&-"}) {
    EXPECT_EQ(rondo_redirected(lost, {"walk"}).status, 2) << lost;
    EXPECT_EQ(rondo_redirected(lost, {"eval", "--bogus"}).status, 2) << lost;
    EXPECT_EQ(rondo_redirected(lost, {"config", "absent.toml"}).status, 2) << lost;
    EXPECT_EQ(rondo_redirected(lost, {"run", "-n", "2", "--", "true"}).status, 0) << lost;
    EXPECT_EQ(rondo_redirected(lost, {"run", "-n", "2", "--", "false"}).status, 1) << lost;
  }
}

// A file that was opened later had the number of the closed stream.
TEST(CommandLineTest, StartsProgramsWithAllStandardStreams) {
  const std::string program = "read line; test -e /proc/$$/fd/0 -a -e /proc/$$/fd/1";
  const Ended ended = rondo_redirected("<&- >&-", {"run", "-n", "2", "--", "sh", "-c", program});
  EXPECT_EQ(ended.status, 0) << ended.err;
}

// It said nothing: that was left to rank 0, which need not have the same files.
TEST(CommandLineTest, ARankThatJoinsNoOthersSaysWhatIsWrong) {
  const Ended ended = rondo({"config", "absent.toml"}, {{"RONDO_RANK", "1"}, {"RONDO_SIZE", "2"}});
  EXPECT_EQ(ended.status, 2);
  EXPECT_THAT(lines(ended.err),
              testing::ElementsAre(testing::AllOf(testing::StartsWith("rondo: rank 1 on "),
                                                  HasSubstr("absent.toml"))));
}

TEST(CommandLineTest, OfRanksThatWillJoinTheFirstOfEachHostSaysWhatIsWrong) {
  const auto on_second_host = [](const char* local_rank) -> Environment {
    return {{"RANK", "3"},
            {"WORLD_SIZE", "4"},
            {"LOCAL_RANK", local_rank},
            {"LOCAL_WORLD_SIZE", "2"},
            {"MASTER_ADDR", "localhost"},
            {"MASTER_PORT", "29500"},
            {"TORCHELASTIC_RUN_ID", "none"}};
  };
  for (const char* command : {"train", "eval"}) {
    const Ended first = rondo({command, "absent.toml"}, on_second_host("0"));
    const Ended second = rondo({command, "absent.toml"}, on_second_host("1"));
    EXPECT_THAT(lines(first.err), testing::ElementsAre(testing::StartsWith("rondo: rank 3 on ")));
    EXPECT_EQ(second.err, "");
    EXPECT_EQ(second.status, first.status);
  }
}

const Environment by_hand = {{"RONDO_RANK", "0"}, {"RONDO_SIZE", "1"}};
const Environment with_ucx = {{"RONDO_RANK", "0"}, {"RONDO_SIZE", "1"}, {"RONDO_FABRIC", "ucx"}};

const std::vector<Mistake> mistakes = {
    {{"walk"}, "rondo: there is no subcommand 'walk'; there are: run"},
    {{}, "subcommand is required"},
    {{"run", "--bogus", "--", "true"}, "--bogus; see rondo run --help"},
    {{"run", "-n", "2"}, "nothing to run"},
    {{"run", "-n", "2", "echo", "hi"}, "write -- before the program: rondo run -n 2 -- echo hi"},
    {{"bench", "foo"}, "there is no subcommand 'foo' of rondo bench; there are: latency, "},
    {{"run", "-n", "0", "--", "true"}, "--ranks"},
    {{"run", "-n", "2", "--fake-nodes", "3", "--", "true"}, "give -n 3 or more"},
    {{"run", "-n", "2", "--latency-us", "5", "--", "true"}, "add --fake-nodes 2"},
    {{"run", "-n", "2", "--fake-nodes", "2", "--fabric", "myrinet", "--", "true"},
     "auto, tcp, ucx, ucx:TRANSPORTS"},
    {{"run", "-n", "2", "--fake-nodes", "2", "--", "true"},
     "RONDO_FABRIC: 'myrinet' is none of auto, tcp, ",
     {{"RONDO_FABRIC", "myrinet"}}},
    {{"run", "-n", "2", "--fake-nodes", "2", "--interface", "absent9", "--", "true"},
     "interface: nothing matches 'absent9'"},
    {{"bench", "allreduce", "-n", "2", "--fake-nodes", "2", "--algorithms", "bogus"},
     "\"bogus\" is not NAME:FROM-TO"},
    {{"bench", "barrier"},
     "RONDO_SIZE or RONDO_COORDINATOR is not; set all three",
     {{"RONDO_RANK", "0"}}},
    {{"bench", "barrier", "-n", "2"},
     "RONDO_SIZE or RONDO_COORDINATOR is not; set all three",
     {{"RONDO_RANK", "0"}}},
    {{"bench", "barrier"},
     "rondo: RONDO_COORDINATOR, RONDO_RANK and RONDO_SIZE must be set together",
     {{"RONDO_SIZE", "2"}}},
    {{"bench", "barrier"},
     "RONDO_COORDINATOR='foo' is not of the form",
     {{"RONDO_RANK", "0"}, {"RONDO_SIZE", "1"}, {"RONDO_COORDINATOR", "foo"}}},
    {{"bench", "barrier"},
     "rondo: bootstrap: PMI_RANK=0 and PMI_SIZE=2 say that this is one of several",
     {{"PMI_RANK", "0"}, {"PMI_SIZE", "2"}}},
    {{"run", "-n", "2", "--threads", "4096", "--", "true"}, "--oversubscribe"},
    {{"info", "--format", "csv"}, "--format: csv not in {text,json}"},
    {{"bench", "allreduce", "-m", "7"}, "not a multiple of 4"},
    {{"bench", "halo", "-n", "2", "-m", "1M"}, "halo takes up to 65536 bytes"},
    {{"bench", "latency", "-n", "1"}, "needs two ranks; give -n 2"},
    {{"bench", "segmented", "-n", "2", "--groups", "3"}, "3 groups need at least as many ranks"},
    {{"train", "no-such-file.toml"}, "no-such-file.toml"},
    {{"init"}, "model is required; see rondo init --help"},
    {{"predict", "run"}, "images is required; see rondo predict --help"},
    {{"export", "run"}, "--out is required; see rondo export --help"},
    {{"train", "x.toml", "--memory-limit", "1.5G"}, "the size '1.5G' is not a number of bytes"},
    {{"run", "-n", "2", "--fake-nodes", "2", "--latency-us", "nan", "--", "true"},
     "--latency-us: nan is impossible: must be finite"},
    {{"find-rate", "x.toml", "--from", "-1"}, "--from: -1 is impossible: must be greater than 0"},
    {{"find-rate", "x.toml", "--set", "train.max_steps = 3"},
     "--set train.max_steps: find-rate has its own"},
    {{"bench", "allreduce", "-m", ""}, "--sizes: is empty; give a value"},
    {{"plan", "x.toml", "--ranks", "2", "--flops", "nan"},
     "--flops: nan is impossible: must be finite"},
    {{"compare", "x.toml", "--schemes", "lazy", "--accuracy", "101"},
     "--accuracy: 101 is impossible: must be from 0 to 100"},
    {{"compare", "x.toml", "--schemes", "lazy", "--seed-list", "1,99999999999999999999"},
     "must be a whole number from 0 to 9223372036854775807"},
    {{"compare", "x.toml", "--schemes", "lazy"}, "start it without a launcher", by_hand},
    {{"bench", "model", "lenet5", "-n", "3"},
     "one of 1 ranks already, so it cannot start 3",
     by_hand},
    // Nobody but the user has set what it misses.
    {{"bench", "barrier", "--fabric", "ofi"},
     "RONDO_FABRIC is not set, but 'ofi' is asked for; set it for every rank",
     by_hand},
    {{"bench", "barrier", "--fabric", "ofi"},
     "RONDO_FABRIC is 'ucx', but 'ofi' is asked for",
     with_ucx}};

TEST(CommandLineTest, SaysAMistakeInOneLineAndEndsWithStatusTwo) {
  for (const Mistake& mistake : mistakes) {
    expect_refused(rondo(mistake.arguments, mistake.environment), 2, mistake.said);
  }
}

// `rondo info` as a program.

TEST(InfoTest, PrintsOneJsonObjectWithEveryLink) {
  const auto facts = nlohmann::json::parse(rondo({"info", "--format", "json"}).out);
  EXPECT_GE(facts["cores"], 1);
  EXPECT_GE(facts["default_ranks"], 1);
  EXPECT_GE(facts["default_threads"], 1);
  EXPECT_GT(facts["memory_bytes"], 0);
  EXPECT_TRUE(facts["cpu_quota"].is_null() || facts["cpu_quota"] > 0.0);
  std::vector<std::string> names;
  for (const auto& link : facts["links"]) {
    names.push_back(link["name"]);
    EXPECT_EQ(link["usable"], link["problem"] == "") << link;
    EXPECT_NE(link["usable"], link["facts"].empty()) << link;
  }
  EXPECT_THAT(names, testing::ElementsAre("shm", "ofi", "tcp", "ucx"));
}

TEST(InfoTest, SeesAllCoresWhateverOpenMpIsTold) {
  const std::vector<std::string> info = {"info", "--format", "json"};
  const auto cores = nlohmann::json::parse(rondo(info).out)["cores"];
  for (const auto& binding : openmp_bindings) {
    EXPECT_EQ(nlohmann::json::parse(rondo(info, {binding}).out)["cores"], cores) << binding.first;
  }
}

TEST(InfoTest, SeesOnlyTheCoresThatItMayUse) {
  // Asked apart: a failure of rondo itself must not pass for a machine without CPU 0.
  if (std::system("taskset -c 0 true 2>/dev/null") != 0) {
    GTEST_SKIP() << "taskset cannot choose CPU 0 here";
  }
  const Ended ended = rondo(
      {"run", "-n", "1", "--", "taskset", "-c", "0", rondo_path(), "info", "--format", "json"});
  ASSERT_EQ(ended.status, 0) << ended.err;
  EXPECT_EQ(nlohmann::json::parse(ended.out)["hardware_threads"], 1);
}

TEST(InfoTest, SaysWhyALinkCannotBeUsed) {
  const ScratchFolder folder;
  const std::string plugin = folder.write("librondo-link-ucx.so", "not a library").string();
  const Ended ended = rondo({"info"}, {{"RONDO_PLUGIN_PATH", folder.path().string()}});
  EXPECT_EQ(ended.status, 0);
  EXPECT_THAT(ended.out, testing::ContainsRegex("link ucx +cannot be used: .*" + plugin));
}

// Its number was that of NUMA domains, which may be a part of the machine's.
TEST(InfoTest, SaysWhichMemoryItMeans) {
  std::ifstream file("/proc/meminfo");
  std::string name;
  std::uint64_t kibibytes = 0;
  file >> name >> kibibytes;
  ASSERT_EQ(name, "MemTotal:");

  const auto facts = nlohmann::json::parse(rondo({"info", "--format", "json"}).out);
  const Ended ended = rondo({"info"});

  EXPECT_EQ(facts["memory_bytes"], kibibytes * 1024);
  EXPECT_GT(facts["numa_memory_bytes"], 0);
  EXPECT_THAT(ended.out, HasSubstr(std::to_string(kibibytes / 1024) +
                                   " MiB in the machine (the kernel's MemTotal), "));
  EXPECT_THAT(ended.out, HasSubstr(" in its NUMA domains (hwloc)"));
  EXPECT_THAT(ended.out, HasSubstr("oneDNN"));
}

}  // namespace
}  // namespace rondo::test::command_line_test
