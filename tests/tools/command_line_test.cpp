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

namespace rondo::test::command_line_test {
namespace {

using testing::HasSubstr;

// Every mistake on the command line is one line on stderr and status 2.

TEST(CommandLineTest, PrintsItsVersion) {
  const Ended ended = rondo({"--version"});
  EXPECT_EQ(ended.status, 0);
  EXPECT_THAT(ended.out, testing::StartsWith("rondo 0."));
}

TEST(CommandLineTest, HelpHasTheRanksOfEachCommand) {
  const auto help = [](std::vector<std::string> command) {
    command.emplace_back("--help");
    return rondo(command).out;
  };
  EXPECT_THAT(help({"train"}), HasSubstr("Ranks to start (default: one per NUMA domain)"));
  EXPECT_THAT(help({"bench", "barrier"}), HasSubstr("(default: one per NUMA domain)"));
  EXPECT_THAT(help({"eval"}), HasSubstr("Ranks to start (default: 1)"));
  EXPECT_THAT(help({"bench", "model"}), HasSubstr("Ranks to start (default: 1)"));
  for (const char* name : {"latency", "bandwidth", "token", "tune"}) {
    EXPECT_THAT(help({"bench", name}), HasSubstr("Ranks to start (default: 2)"));
  }
}

TEST(CommandLineTest, HelpNamesTheSubcommands) {
  const Ended ended = rondo({"--help"});
  EXPECT_EQ(ended.status, 0);
  EXPECT_THAT(ended.out, HasSubstr("run"));
}

// The status was 0, and nothing was said.
TEST(CommandLineTest, FailsWhereItsOutputIsLost) {
  const std::vector<std::vector<std::string>> commands = {
      {"--help"}, {"--version"}, {"train", "--help"}, {"init", "lenet5"}, {"info"}};
  for (const std::vector<std::string>& arguments : commands) {
    const Ended ended = rondo_redirected(">/dev/full", arguments);

    EXPECT_EQ(ended.status, 1);
    EXPECT_EQ(ended.err, "rondo: cannot write to standard output: No space left on device\n");
  }
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

TEST(CommandLineTest, FailsWhereItsOutputIsClosed) {
  const Ended ended = rondo_redirected(">&-", {"init", "lenet5"});
  EXPECT_EQ(ended.status, 1);
  EXPECT_EQ(ended.err, "rondo: cannot write to standard output: Bad file descriptor\n");
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

// A mistake, and what the line about it says.
struct Mistake {
  const char* name;
  std::vector<std::string> arguments;
  const char* said;
  Environment environment = {};
};

class MistakeTest : public testing::TestWithParam<Mistake> {};

TEST_P(MistakeTest, IsOneLineAndStatusTwo) {
  const Ended ended = rondo(GetParam().arguments, GetParam().environment);
  EXPECT_EQ(ended.status, 2);
  EXPECT_THAT(ended.out, testing::IsEmpty());
  EXPECT_THAT(lines(ended.err), testing::ElementsAre(HasSubstr(GetParam().said)));
}

const Environment by_hand = {{"RONDO_RANK", "0"}, {"RONDO_SIZE", "1"}};
const Environment with_ucx = {{"RONDO_RANK", "0"}, {"RONDO_SIZE", "1"}, {"RONDO_FABRIC", "ucx"}};

INSTANTIATE_TEST_SUITE_P(
    , MistakeTest,
    testing::Values(
        Mistake{"Subcommand", {"walk"}, "rondo: there is no subcommand 'walk'; there are: run"},
        Mistake{"NoSubcommand", {}, "subcommand is required"},
        Mistake{"Option", {"run", "--bogus", "--", "true"}, "--bogus; see rondo run --help"},
        Mistake{"NothingToRun", {"run", "-n", "2"}, "nothing to run"},
        Mistake{"NoDashes",
                {"run", "-n", "2", "echo", "hi"},
                "write -- before the program: rondo run -n 2 -- echo hi"},
        Mistake{"BenchSubcommand",
                {"bench", "foo"},
                "there is no subcommand 'foo' of rondo bench; there are: latency, "},
        Mistake{"ZeroRanks", {"run", "-n", "0", "--", "true"}, "--ranks"},
        Mistake{"FakeNodes",
                {"run", "-n", "2", "--fake-nodes", "3", "--", "true"},
                "give -n 3 or more"},
        Mistake{"SlowOneNode",
                {"run", "-n", "2", "--latency-us", "5", "--", "true"},
                "add --fake-nodes 2"},
        Mistake{"Fabric",
                {"run", "-n", "2", "--fake-nodes", "2", "--fabric", "myrinet", "--", "true"},
                "auto, tcp, ucx, ucx:TRANSPORTS"},
        Mistake{"FabricOfEnvironment",
                {"run", "-n", "2", "--fake-nodes", "2", "--", "true"},
                "RONDO_FABRIC: 'myrinet' is none of auto, tcp, ",
                {{"RONDO_FABRIC", "myrinet"}}},
        Mistake{"Interface",
                {"run", "-n", "2", "--fake-nodes", "2", "--interface", "absent9", "--", "true"},
                "interface: nothing matches 'absent9'"},
        Mistake{"Algorithms",
                {"bench", "allreduce", "-n", "2", "--fake-nodes", "2", "--algorithms", "bogus"},
                "\"bogus\" is not NAME:FROM-TO"},
        Mistake{"LoneRank",
                {"bench", "barrier"},
                "RONDO_SIZE or RONDO_COORDINATOR is not; set all three",
                {{"RONDO_RANK", "0"}}},
        Mistake{"LoneRankThatStartsRanks",
                {"bench", "barrier", "-n", "2"},
                "RONDO_SIZE or RONDO_COORDINATOR is not; set all three",
                {{"RONDO_RANK", "0"}}},
        Mistake{"LoneSize",
                {"bench", "barrier"},
                "rondo: RONDO_COORDINATOR, RONDO_RANK and RONDO_SIZE must be set together",
                {{"RONDO_SIZE", "2"}}},
        Mistake{"Coordinator",
                {"bench", "barrier"},
                "RONDO_COORDINATOR='foo' is not of the form",
                {{"RONDO_RANK", "0"}, {"RONDO_SIZE", "1"}, {"RONDO_COORDINATOR", "foo"}}},
        Mistake{"HalfOfMpiexec",
                {"bench", "barrier"},
                "rondo: rendezvous: PMI_RANK=0 and PMI_SIZE=2 say that this is one of several",
                {{"PMI_RANK", "0"}, {"PMI_SIZE", "2"}}},
        Mistake{
            "Threads", {"run", "-n", "2", "--threads", "4096", "--", "true"}, "--oversubscribe"},
        Mistake{"Choice", {"info", "--format", "csv"}, "--format: csv not in {text,json}"},
        Mistake{"Size", {"bench", "allreduce", "-m", "7"}, "not a multiple of 4"},
        Mistake{"Tile", {"bench", "halo", "-n", "2", "-m", "1M"}, "halo takes up to 65536 bytes"},
        Mistake{"Alone", {"bench", "latency", "-n", "1"}, "needs two ranks; give -n 2"},
        Mistake{"Groups",
                {"bench", "segmented", "-n", "2", "--groups", "3"},
                "3 groups need at least as many ranks"},
        Mistake{"Configuration", {"train", "no-such-file.toml"}, "no-such-file.toml"},
        Mistake{"NoModel", {"init"}, "model is required; see rondo init --help"},
        Mistake{"NoImage", {"predict", "run"}, "images is required; see rondo predict --help"},
        Mistake{"NoOutput", {"export", "run"}, "--out is required; see rondo export --help"},
        Mistake{"MemoryLimit",
                {"train", "x.toml", "--memory-limit", "1.5G"},
                "the size '1.5G' is not a number of bytes"},
        Mistake{"Latency",
                {"run", "-n", "2", "--fake-nodes", "2", "--latency-us", "nan", "--", "true"},
                "--latency-us: nan is impossible: must be finite"},
        Mistake{"Rate",
                {"find-rate", "x.toml", "--from", "-1"},
                "--from: -1 is impossible: must be greater than 0"},
        Mistake{"Rates",
                {"find-rate", "x.toml", "--set", "train.max_steps = 3"},
                "--set train.max_steps: find-rate has its own"},
        Mistake{"Sizes", {"bench", "allreduce", "-m", ""}, "--sizes: is empty; give a value"},
        Mistake{"Flops",
                {"plan", "x.toml", "--ranks", "2", "--flops", "nan"},
                "--flops: nan is impossible: must be finite"},
        Mistake{"Accuracy",
                {"compare", "x.toml", "--schemes", "lazy", "--accuracy", "101"},
                "--accuracy: 101 is impossible: must be from 0 to 100"},
        Mistake{"Seeds",
                {"compare", "x.toml", "--schemes", "lazy", "--seed-list", "1,99999999999999999999"},
                "must be a whole number from 0 to 9223372036854775807"},
        Mistake{"Comparison",
                {"compare", "x.toml", "--schemes", "lazy"},
                "start it without a launcher",
                by_hand},
        Mistake{"OtherSize",
                {"bench", "model", "lenet5", "-n", "3"},
                "one of 1 ranks already, so it cannot start 3",
                by_hand},
        // Nobody but the user has set what it misses.
        Mistake{"NoVariable",
                {"bench", "barrier", "--fabric", "ofi"},
                "RONDO_FABRIC is not set, but 'ofi' is asked for; set it for every rank",
                by_hand},
        Mistake{"OtherVariable",
                {"bench", "barrier", "--fabric", "ofi"},
                "RONDO_FABRIC is 'ucx', but 'ofi' is asked for",
                with_ucx}),
    [](const auto& mistake) { return std::string(mistake.param.name); });

// `rondo info` as a program.

TEST(InfoTest, PrintsOneJsonObject) {
  const auto facts = nlohmann::json::parse(rondo({"info", "--format", "json"}).out);
  EXPECT_GE(facts["cores"], 1);
  EXPECT_GE(facts["default_ranks"], 1);
  EXPECT_GE(facts["default_threads"], 1);
  EXPECT_GT(facts["memory_bytes"], 0);
  EXPECT_TRUE(facts["cpu_quota"].is_null() || facts["cpu_quota"] > 0.0);
  EXPECT_EQ(facts["links"][0]["name"], "shm");
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

TEST(InfoTest, ListsEveryLinkWithWhatItHasOrLacks) {
  const auto facts = nlohmann::json::parse(rondo({"info", "--format", "json"}).out);
  std::vector<std::string> names;
  for (const auto& link : facts["links"]) {
    names.push_back(link["name"]);
    EXPECT_EQ(link["usable"], link["problem"] == "") << link;
    EXPECT_NE(link["usable"], link["facts"].empty()) << link;
  }
  EXPECT_THAT(names, testing::ElementsAre("shm", "ofi", "tcp", "ucx"));
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
}

TEST(InfoTest, NamesTheKernelsInText) {
  const Ended ended = rondo({"info"});
  EXPECT_EQ(ended.status, 0);
  EXPECT_THAT(ended.out, HasSubstr("oneDNN"));
  EXPECT_THAT(ended.out, HasSubstr("NUMA"));
}

}  // namespace
}  // namespace rondo::test::command_line_test
