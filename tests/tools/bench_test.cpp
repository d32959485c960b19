// `rondo bench` as a program, inside a node and between nodes that are made up.

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstddef>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/program.hpp"
#include "support/sanitized.hpp"
#include "support/scratch_folder.hpp"
#include "tools/runs.hpp"

namespace rondo::test::bench_test {
namespace {

using testing::HasSubstr;
using testing::SizeIs;

// `rondo bench` as a program, inside a node.

Ended bench(const std::string& name, const Words& more) {
  return rondo(joined({"bench", name, "--format", "json", "--iterations", "2"}, more));
}

/// The output of a bench that succeeds: one array of rows and nothing else.
nlohmann::json printed(const Ended& ended) {
  EXPECT_EQ(ended.status, 0) << ended.err;
  return nlohmann::json::parse(ended.out);
}

nlohmann::json rows_of(const std::string& name, const std::vector<std::string>& more) {
  return printed(bench(name, more));
}

TEST(BenchTest, PrintsOneJsonArrayAndNothingElse) {
  const auto rows = rows_of("allreduce", {"-n", "2", "-m", "4:64K"});

  ASSERT_THAT(rows, SizeIs(2 * 8));  // 4 bytes to 64 KiB by fours, in two kinds of memory
  for (const auto& row : rows) {
    EXPECT_EQ(row["ranks"], 2);
    EXPECT_EQ(row["wrong"], 0);
    EXPECT_GT(row["min_us"], 0.0);
    EXPECT_LE(row["min_us"], row["median_us"]);
    EXPECT_LE(row["median_us"], row["p99_us"]);
  }
}

TEST(BenchTest, MeasuresTheLoaderForEveryNumberOfDecoders) {
  const ScratchFolder folder;
  const std::string config =
      folder.write("run.toml",
                   "[data]\nname = \"synthetic\"\ntraining = 40\n"
                   "augment = [\"flip\", \"mixup:1\"]\n"
                   "[model]\nname = \"lenet5\"\n[train]\nglobal_batch = 16\n");
  const auto rows =
      printed(rondo({"bench", "data", config, "-d", "3", "--seconds", "0.01", "--format", "json"}));

  ASSERT_THAT(rows, SizeIs(3));
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(rows[i]["decoders"], i + 1);
    EXPECT_EQ(rows[i]["image"], "28x28x1");
    EXPECT_GT(rows[i]["images"], 0);
    EXPECT_GT(rows[i]["images_per_second"], 0.0);
    EXPECT_GT(rows[i]["images_per_cpu_second"], 0.0);
  }
  EXPECT_EQ(rondo({"bench", "data", "absent.toml"}).status, 2);
}

TEST(BenchTest, PlaysTheBootstrapOfMoreRanksThanThereAre) {
  const auto rows = printed(
      rondo({"bench", "bootstrap", "--ranks", "80", "--ranks-per-node", "16", "--format", "json"}));

  ASSERT_THAT(rows, SizeIs(2));
  EXPECT_EQ(rows[0]["ranks"], 64);
  EXPECT_EQ(rows[0]["nodes"], 4);
  EXPECT_TRUE(rows[0]["bytes_per_rank"].is_null());
  EXPECT_EQ(rows[1]["ranks"], 80);
  EXPECT_EQ(rows[1]["nodes"], 5);
  EXPECT_TRUE(rows[1]["bytes_per_rank"].is_number());
  for (const auto& row : rows) {
    EXPECT_LE(row["join_seconds"], row["seconds"]);
    EXPECT_GT(row["store_bytes"], 0);
    EXPECT_GT(row["sent_bytes"], 0);
  }
}

TEST(BenchTest, PlaysTheBootstrapOfAPartOfANode) {
  const auto rows = printed(
      rondo({"bench", "bootstrap", "--ranks", "3", "--ranks-per-node", "4", "--format", "json"}));
  ASSERT_THAT(rows, SizeIs(1));
  EXPECT_EQ(rows[0]["nodes"], 1);
}

// Rows that a measurement has, how many times the bus bandwidth is that of the algorithm, and what
// stands in the last row.
struct Measured {
  std::string name;
  Words options;
  std::size_t rows;
  double bus_factor;
  nlohmann::json last;
};
const std::vector<Measured> measured = {
    {"allreduce", {"-n", "2", "-m", "4K", "--memory", "private"}, 1, 1.0, {{"memory", "private"}}},
    {"allreduce", {"-n", "8", "-m", "1K", "--limit"}, 2, 1.75, {{"ranks", 8}}},
    {"allgather", {"-n", "2", "-m", "64K", "--memory", "arena"}, 1, 0.5, {{"count", 16384}}},
    {"allgather",
     {"-n", "2", "-m", "64", "--memory", "arena", "--in-place", "--out-of-place"},
     2,
     0.5,
     {{"place", "out"}}},
    {"bandwidth", {"-n", "2", "-m", "4K", "--memory", "arena"}, 1, 1.0, {{"bytes", 4096}}},
    {"bandwidth", {"-n", "2", "-m", "4K", "--memory", "arena", "--bidirectional"}, 1, 2.0, {}},
    {"latency",
     {"-n", "3", "-m", "64", "--memory", "arena", "--peer", "1"},
     1,
     1.0,
     {{"ranks", 3}}},
    // A group of one rank moves nothing; its rank ended with status 1, and nobody said why.
    {"segmented", {"-n", "3", "--groups", "2", "-m", "4K", "--min-busbw", "1e-9"}, 2, 1.0, {}}};

TEST(BenchTest, MeasuresWhatIsAskedForAndCountsBandwidthAsNcclTestsDo) {
  for (const Measured& one : measured) {
    const auto rows = rows_of(one.name, one.options);
    ASSERT_THAT(rows, SizeIs(one.rows)) << one.name;
    for (const auto& row : rows) {
      EXPECT_EQ(row["wrong"], 0) << row;
      EXPECT_GT(row["median_us"], 0.0) << row;
      EXPECT_DOUBLE_EQ(row["busbw_GBs"], one.bus_factor * row["algbw_GBs"].get<double>()) << row;
    }
    for (const auto& [name, value] : one.last.items()) EXPECT_EQ(rows.back()[name], value) << name;
  }
}

TEST(BenchTest, MeasuresTheLimitInTurn) {
  const auto rows = rows_of("allreduce", {"-n", "2", "-m", "4K", "--memory", "arena", "--limit"});
  EXPECT_GT(rows[0]["limit_us"], 0.0);
  EXPECT_GT(rows[0]["percent"], 0.0);
}

TEST(BenchTest, RunsAsARankOfRondoRun) {
  const auto rows = printed(rondo({"run", "-n", "3", "--", rondo_path(), "bench", "allreduce", "-m",
                                   "64", "--iterations", "5", "--format", "json"}));
  EXPECT_EQ(rows[0]["ranks"], 3);
}

TEST(BenchTest, FailsWhereTheBandwidthIsTooLowAndSaysWhere) {
  const Ended ended =
      bench("allreduce", {"-n", "2", "-m", "64", "--memory", "arena", "--min-busbw", "1e6"});
  EXPECT_EQ(ended.status, 1);
  EXPECT_THAT(ended.err, HasSubstr("64 bytes, memory arena, place in: the bus bandwidth of"));
}

TEST(BenchTest, SaysWhatTheNumbersWereMeasuredWith) {
  const Ended ended = bench(
      "reduce", {"-n", "2", "-m", "64", "--type", "bf16", "--op", "max", "--buffers", "read-back"});
  EXPECT_THAT(ended.err, HasSubstr(": reduce of bf16, max, buffers rewritten and read back"));
  EXPECT_THAT(ended.err, HasSubstr("2 ranks on 1 node"));
  EXPECT_THAT(ended.err, HasSubstr("inside a node: shm"));
  EXPECT_THAT(ended.err, HasSubstr("rank 0 may use core"));
}

// One of two ranks that torchrun has started; `folder` tells jobs apart.
Environment as_torchrun(const std::string& rank, const ScratchFolder& folder) {
  return {{"RANK", rank},
          {"LOCAL_RANK", rank},
          {"WORLD_SIZE", "2"},
          {"LOCAL_WORLD_SIZE", "2"},
          {"MASTER_ADDR", "localhost"},
          {"MASTER_PORT", "29500"},
          {"TORCHELASTIC_RUN_ID", folder.path()}};
}

// Each of the ranks has the share of the cores that it would have without the variable.
TEST(BenchTest, DividesAllCoresUnderAnotherLauncherWhateverOpenMpIsTold) {
  const std::vector<std::string> barrier = {"bench", "barrier", "--iterations", "1"};
  const auto cores_of_ranks = [&](const Environment& binding) {
    const ScratchFolder folder;
    std::vector<std::string> told;
    std::vector<std::unique_ptr<Program>> ranks;
    for (const char* const rank : {"0", "1"}) {
      Environment environment = as_torchrun(rank, folder);
      environment.insert(environment.end(), binding.begin(), binding.end());
      ranks.push_back(std::make_unique<Program>(rondo_command(barrier), environment));
    }
    for (const auto& rank : ranks) {
      for (const std::string& line : lines(rank->wait().err)) {
        const std::size_t pid = line.find(": pid ");
        if (pid != std::string::npos) told.push_back(line.substr(line.find(',', pid)));
      }
    }
    return told;
  };
  const auto told = cores_of_ranks({});
  ASSERT_THAT(told, SizeIs(2));
  for (const auto& binding : openmp_bindings) EXPECT_EQ(cores_of_ranks({binding}), told);
}

// Such a launcher keeps no records of its ranks.
TEST(BenchTest, WritesTheFlightRecordItselfUnderAnotherLauncher) {
  const ScratchFolder folder;
  Program other(rondo_command({"bench", "allreduce", "-m", "4K", "--bind", "none"}),
                as_torchrun("1", folder));

  const Ended ended =
      rondo({"bench", "barrier", "--bind", "none", "--flight-record", folder.path()},
            as_torchrun("0", folder));
  other.wait();

  EXPECT_EQ(ended.status, 4);
  EXPECT_THAT(ended.err, HasSubstr("ranks posted different operations"));
  EXPECT_TRUE(std::filesystem::exists(folder.path() / "flight-rank0.json"));
}

TEST(BenchTest, TunesWhatOneNodeHas) {
  const auto tuning =
      printed(rondo({"bench", "--tune", "-n", "2", "--iterations", "2", "--format", "json"}));
  EXPECT_EQ(tuning["format"], 1);
  EXPECT_EQ(tuning["nodes"], 1);
  ASSERT_THAT(tuning["levels"], SizeIs(1));
  EXPECT_EQ(tuning["levels"][0]["level"], "node");
  EXPECT_GE(tuning["levels"][0]["alpha_seconds"], 0.0);
  EXPECT_EQ(tuning["allreduce"], "");
}

TEST(BenchTest, TunesWithTheThreadsAskedForUnderAnotherLauncher) {
  const ScratchFolder folder;
  const std::vector<std::string> tune = {
      "bench", "tune", "--bind", "none", "--threads", "2", "--oversubscribe", "--iterations", "1"};
  Program other(rondo_command(tune), as_torchrun("1", folder));

  const Ended ended = rondo(tune, as_torchrun("0", folder));

  EXPECT_EQ(ended.status, 0) << ended.err;
  EXPECT_THAT(ended.err, HasSubstr("not bound, as asked, 2 threads"));
  EXPECT_THAT(other.wait().err, HasSubstr("not bound, as asked, 2 threads"));
}

// A port of the loopback that no other program gets; rank 0 may listen at it, as it is only bound.
class LoopbackPort {
 public:
  LoopbackPort() {
    const int yes = 1;
    setsockopt(socket_, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    address_.sin_family = AF_INET;
    address_.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof address_;
    auto* address = reinterpret_cast<sockaddr*>(&address_);
    if (bind(socket_, address, length) != 0 || getsockname(socket_, address, &length) != 0) {
      throw std::runtime_error("no port");
    }
  }
  LoopbackPort(const LoopbackPort&) = delete;
  LoopbackPort& operator=(const LoopbackPort&) = delete;
  ~LoopbackPort() { close(socket_); }

  [[nodiscard]] std::string text() const { return std::to_string(ntohs(address_.sin_port)); }

 private:
  int socket_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address_{};
};

// The sockets of all but the first World were bound to all addresses, and rank 0 refused them.
TEST(BenchTest, TunesOverALoopbackThatIsCalledByNameWithoutASecret) {
  const ScratchFolder home;  // without ~/.rondo/secret
  const LoopbackPort port;
  const auto by_hand = [&](const char* rank) {
    return Environment{
        {"RONDO_COORDINATOR", "tcp:localhost:" + port.text() + "/" + std::string(32, 'd')},
        {"RONDO_RANK", rank},
        {"RONDO_SIZE", "2"},
        {"RONDO_FAKE_NODES", "2"},
        {"RONDO_FABRIC", "shm"},
        {"RONDO_SECRET", ""},
        {"HOME", home.path()}};
  };
  const std::vector<std::string> tune = {"bench", "tune", "--iterations", "1"};
  Program other(rondo_command(tune), by_hand("1"));

  const Ended ended = rondo(tune, by_hand("0"));

  EXPECT_EQ(ended.status, 0) << ended.err;
  EXPECT_THAT(ended.out, HasSubstr("allreduce = "));
  EXPECT_EQ(other.wait().status, 0);
}

// By their sizes; "" where they have none.
const std::vector<std::pair<std::string, Words>> kinds = {
    {"4:4K", {"latency", "reduce_scatter", "allgather", "alltoall", "alltoallv", "gather"}},
    {"4:4K", {"scatter", "scan", "exscan"}},
    {"4K", {"bandwidth"}},
    {"40", {"allreduce"}},
    {"40K", {"broadcast", "reduce", "segmented"}},
    {"4:40K", {"coalesced"}},
    {"64:1K", {"halo"}},
    {"", {"barrier", "token"}}};

TEST(BenchKindTest, FindsEveryElementRight) {
  for (const auto& [size, names] : kinds) {
    for (const std::string& name : names) {
      const auto rows =
          rows_of(name, size.empty() ? Words{"-n", "3"} : Words{"-n", "3", "-m", size});
      EXPECT_FALSE(rows.empty());
      for (const auto& row : rows) {
        EXPECT_EQ(row["wrong"], 0) << name << row;
        EXPECT_GT(row["median_us"], 0.0) << name << row;
      }
    }
  }
}

TEST(BenchTypeTest, IsReducedExactly) {
  for (const char* type :
       {"f32", "f64", "bf16", "f16", "i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64"}) {
    const auto row = rows_of("allreduce", {"-n", "2", "-m", "8K", "--type", type})[0];
    EXPECT_EQ(row["type"], type);
    EXPECT_EQ(row["wrong"], 0) << type;
  }
}

// On three ranks: of an average one rank has no partner.
TEST(BenchReductionTest, IsExactForIntegersAndNumbers) {
  for (const std::string op : {"min", "max", "prod", "avg", "bit_and", "bit_or", "bit_xor"}) {
    for (const std::string type : {"i8", "u64", "bf16", "f32"}) {
      // Each starts the program once more, with other loops that the tests of transport run, too.
      if (sanitized && type != "i8" && type != "bf16") continue;
      if (op.starts_with("bit") && type.find('f') != std::string::npos) continue;
      const auto row = rows_of(
          "allreduce", {"-n", "3", "-m", "8K", "--op", op, "--type", type, "--memory", "arena"})[0];
      EXPECT_EQ(row["op"], op);
      EXPECT_EQ(row["wrong"], 0) << op << " of " << type;
    }
  }
}

TEST(BenchOptionsTest, RefusesWhatTheTransportDoesNotReduceAndAPeerThatThereIsNot) {
  expect_refused(bench("latency", {"-n", "3", "--peer", "3"}), 2,
                 "there is no rank 3 among 3; give --peer less, or -n more");
  expect_refused(bench("allreduce", {"-n", "2", "--op", "bit_or"}), 2,
                 "--op bit_or is for integers; give --type i32");
  expect_refused(bench("scan", {"-n", "2", "--op", "avg"}), 2, "--op avg is no running reduction");
}

// `rondo bench` as a program, between nodes that are made up.

// Two nodes on one machine need no plug-in.
Ended bench_on_two_nodes(const std::string& name, const Words& more) {
  return bench(name, joined(more, {"-n", "2", "--fake-nodes", "2", "--fabric", "shm"}));
}

TEST(BenchNodesTest, FindsEveryElementRight) {
  for (const char* name : {"latency", "bandwidth", "allreduce", "reduce_scatter", "allgather",
                           "broadcast", "reduce", "alltoall", "alltoallv", "gather", "scatter",
                           "scan", "exscan", "coalesced", "segmented", "halo"}) {
    const Ended ended = bench_on_two_nodes(name, {"-m", "64:64K"});
    EXPECT_THAT(ended.err, HasSubstr("2 ranks on 2 nodes")) << name;
    for (const auto& row : printed(ended)) EXPECT_EQ(row["wrong"], 0) << name << row;
  }
}

TEST(BenchNodesLabelTest, MarksRowsWhoseLinksWereSlowed) {
  const Ended ended = bench_on_two_nodes("token", {"--latency-us", "5"});
  const auto rows = printed(ended);
  ASSERT_THAT(rows, SizeIs(1));
  EXPECT_EQ(rows[0]["injected"], "5us");
  EXPECT_GE(rows[0]["min_us"], 5.0);
  EXPECT_THAT(ended.err, HasSubstr("injected"));
}

TEST(BenchNodesLabelTest, NamesTheLinkBetweenNodes) {
  const Ended ended = bench_on_two_nodes("barrier", {});
  EXPECT_THAT(ended.err, testing::ContainsRegex("between nodes: shm: .* \\(version [0-9.]+\\)"));
}

TEST(BenchTuneTest, FindsWhatBothLevelsCostAndATable) {
  const auto tuning = rows_of("tune", {"-n", "3", "--fake-nodes", "2", "--fabric", "shm"});

  ASSERT_THAT(tuning["levels"], SizeIs(2));
  EXPECT_EQ(tuning["levels"][0]["level"], "node");
  EXPECT_EQ(tuning["levels"][1]["level"], "fabric");
  for (const auto& level : tuning["levels"]) {
    EXPECT_GE(level["alpha_seconds"], 0.0);
    EXPECT_GE(level["beta_seconds_per_byte"], 0.0);
  }
  EXPECT_THAT(tuning["allreduce"].get<std::string>(),
              testing::MatchesRegex("((flat-)?(rd|rh|ring):[0-9km]+-([0-9km]+|max);?)+"));
  std::set<std::string> algorithms;
  for (const auto& time : tuning["allreduce_times"]) algorithms.insert(time["algorithm"]);
  EXPECT_THAT(algorithms,
              testing::ElementsAre("flat-rd", "flat-rh", "flat-ring", "rd", "rh", "ring"));
}

TEST(BenchTuneTest, MeasuresWithTheAlgorithmAskedFor) {
  const auto rows =
      printed(bench_on_two_nodes("allreduce", {"-m", "4K", "--algorithms", "rh:0-max"}));
  ASSERT_FALSE(rows.empty());
  for (const auto& row : rows) EXPECT_EQ(row["wrong"], 0) << row;
}

TEST(BenchTuneTest, GivesATableThatTheBenchTakes) {
  const std::string table = printed(bench_on_two_nodes("tune", {}))["allreduce"];
  const Ended ended = bench_on_two_nodes("allreduce", {"-m", "64", "--algorithms", table});
  EXPECT_EQ(ended.status, 0) << ended.err;
}

TEST(BenchTuneTest, RefusesATableThatMakesNoSense) {
  const Ended ended = bench_on_two_nodes("allreduce", {"-m", "64", "--algorithms", "rd:0-16k"});
  EXPECT_NE(ended.status, 0);
  EXPECT_THAT(ended.err, HasSubstr("rd:0-16k"));
}

}  // namespace
}  // namespace rondo::test::bench_test
