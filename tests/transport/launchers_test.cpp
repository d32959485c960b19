// The meaning of other launchers' variables, one at a time and together, and the exchange over
// PMI-1 with a launcher that is a thread of the test.

#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <future>
#include <limits>
#include <map>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "bootstrap/launchers.hpp"
#include "memory/memory.hpp"
#include "support/store.hpp"

namespace rondo::transport::bootstrap::launchers_test {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

using Variables = std::map<std::string, std::string>;

const Variables mpirun = {{"OMPI_COMM_WORLD_RANK", "1"},
                          {"OMPI_COMM_WORLD_SIZE", "4"},
                          {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
                          {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
                          {"PMIX_RANK", "1"},
                          {"PMIX_NAMESPACE", "4711"}};
const Variables mpiexec = {{"PMI_RANK", "2"},
                           {"PMI_SIZE", "4"},
                           {"PMI_FD", "7"},
                           {"MPI_LOCALRANKID", "0"},
                           {"MPI_LOCALNRANKS", "2"}};
const Variables srun = {{"SLURM_JOB_ID", "17"},
                        {"SLURM_STEP_ID", "0"},
                        {"SLURM_PROCID", "3"},
                        {"SLURM_STEP_NUM_TASKS", "4"},
                        {"SLURM_STEP_NODELIST", "node[08-09]"},
                        {"SLURM_STEP_TASKS_PER_NODE", "2(x2)"},
                        {"SLURM_NODEID", "1"},
                        {"SLURM_LOCALID", "1"}};
const Variables torchrun = {{"RANK", "1"},
                            {"WORLD_SIZE", "4"},
                            {"LOCAL_RANK", "1"},
                            {"LOCAL_WORLD_SIZE", "2"},
                            {"MASTER_ADDR", "10.0.0.1"},
                            {"MASTER_PORT", "29500"}};

Variables operator+(Variables left, const Variables& right) {
  for (const auto& [name, value] : right) left[name] = value;
  return left;
}

class LaunchersTest : public testing::Test {
 protected:
  ~LaunchersTest() override { clear(); }

  void set(const Variables& variables) {
    clear();
    for (const auto& [name, value] : variables) {
      set_.push_back(name);
      ::setenv(name.c_str(), value.c_str(), 1);
    }
  }

  std::string error_of(const Variables& variables) {
    set(variables);
    return stores::error_of([] { (void)find_launcher(); });
  }

  Launcher launcher_of(const Variables& variables) {
    set(variables);
    return find_launcher().value_or(Launcher{});
  }

 private:
  void clear() {
    for (const std::string& name : set_) ::unsetenv(name.c_str());
    set_.clear();
  }

  std::vector<std::string> set_ = {};
};

TEST_F(LaunchersTest, TellNothingWhenNoneIsThere) { EXPECT_FALSE(launched()); }

TEST_F(LaunchersTest, AreRecognised) {
  const std::vector<std::pair<Variables, Launcher>> cases = {
      {mpirun, {{"mpirun", 1, 4, 1, 2}, Source::pmix, ""}},
      {mpiexec, {{"mpiexec", 2, 4, 0, 2}, Source::pmi, ""}},
      {srun, {{"srun", 3, 4, 1, 2}, Source::slurm, ""}},
      {torchrun, {{"torchrun", 1, 4, 1, 2}, Source::torchrun, ""}},
      {srun + Variables{{"PMIX_RANK", "3"}, {"PMIX_NAMESPACE", "slurm.pmix.17.0"}},
       {{"srun", 3, 4, 1, 2}, Source::pmix, ""}},
      {srun + Variables{{"PMI_RANK", "3"}, {"PMI_SIZE", "4"}, {"PMI_FD", "9"}},
       {{"srun", 3, 4, 1, 2}, Source::pmi, ""}}};
  for (const auto& [variables, expected] : cases) {
    const Launcher found = launcher_of(variables);
    EXPECT_EQ(found.launcher, expected.launcher);
    EXPECT_EQ(found.source, expected.source) << expected.launcher;
    EXPECT_EQ(found.rank, expected.rank) << expected.launcher;
    EXPECT_EQ(found.size, expected.size) << expected.launcher;
    EXPECT_EQ(found.local_rank, expected.local_rank) << expected.launcher;
    EXPECT_EQ(found.local_size, expected.local_size) << expected.launcher;
    EXPECT_EQ(launched()->rank, expected.rank);
  }
}

TEST_F(LaunchersTest, OfASingleProcessTellNothing) {
  set({{"PMI_RANK", "0"}, {"PMI_SIZE", "1"}, {"PMI_FD", "7"}});
  EXPECT_FALSE(find_launcher());
  set({{"RANK", "0"}, {"WORLD_SIZE", "1"}});
  EXPECT_FALSE(find_launcher());
}

// sbatch sets most variables of a step for the script itself.
TEST_F(LaunchersTest, TakeNoBatchScriptForAStep) {
  Variables script = srun;
  script["SLURM_STEP_ID"] = "4294967291";
  set(script);
  EXPECT_FALSE(find_launcher());
  script.erase("SLURM_STEP_ID");
  set(script);
  EXPECT_FALSE(find_launcher());
}

// mpirun and mpiexec start one daemon on each node by srun.
TEST_F(LaunchersTest, CountMoreThanTheStepOfTheirDaemons) {
  const Variables daemons = srun + Variables{{"SLURM_PROCID", "1"}, {"SLURM_STEP_NUM_TASKS", "2"}};
  EXPECT_EQ(launcher_of(mpirun + daemons).size, 4);
  EXPECT_EQ(launcher_of(mpiexec + daemons).rank, 2);
  const Variables by_pmix = {{"PMIX_RANK", "1"}, {"PMIX_NAMESPACE", "slurm.pmix.17.0"}};
  EXPECT_EQ(launcher_of(mpiexec + daemons + by_pmix).rank, 2);
  const Variables by_pmi2 = {{"PMI_RANK", "1"}, {"PMI_SIZE", "2"}, {"PMI_FD", "9"}};
  EXPECT_EQ(launcher_of(mpirun + daemons + by_pmi2).size, 4);
}

TEST_F(LaunchersTest, TakeTheWorkersOfTorchrunForWhatTheyAre) {
  const Launcher found = launcher_of(mpirun + srun + torchrun + Variables{{"RANK", "0"}} +
                                     Variables{{"TORCHELASTIC_RUN_ID", "none"}});
  EXPECT_EQ(found.launcher, "torchrun");
  EXPECT_EQ(found.rank, 0);
}

TEST_F(LaunchersTest, ThatContradictEachOtherAreRefusedByName) {
  EXPECT_THAT(error_of(mpirun + mpiexec),
              AllOf(HasSubstr("OMPI_COMM_WORLD_RANK=1 and OMPI_COMM_WORLD_SIZE=4 (mpirun)"),
                    HasSubstr("PMI_RANK=2 and PMI_SIZE=4 (mpiexec)"), HasSubstr("unset")));
  EXPECT_THAT(error_of(srun + torchrun), AllOf(HasSubstr("RANK=1"), HasSubstr("SLURM_PROCID=3")));
  EXPECT_THAT(error_of(mpiexec + Variables{{"RANK", "0"}, {"WORLD_SIZE", "1"}}),
              HasSubstr("WORLD_SIZE=1 (torchrun)"));
}

TEST_F(LaunchersTest, ThatTellTooLittleAreRefusedWithWhatIsMissing) {
  const std::vector<std::pair<Variables, std::string>> cases = {
      {{{"OMPI_COMM_WORLD_RANK", "0"}, {"OMPI_COMM_WORLD_SIZE", "4"}}, "PMIX_RANK is not set"},
      {{{"PMIX_RANK", "0"}, {"PMIX_NAMESPACE", "x"}}, "how many ranks there are"},
      {{{"PMI_RANK", "0"}, {"PMI_SIZE", "4"}}, "PMI_FD is not set"},
      {{{"RANK", "0"}, {"WORLD_SIZE", "4"}}, "MASTER_ADDR and MASTER_PORT are not set"},
      {{{"RANK", "4"}, {"WORLD_SIZE", "4"}}, "ranks count from 0"},
      {{{"RANK", "x"}, {"WORLD_SIZE", "4"}}, "RANK='x'"}};
  for (const auto& [variables, text] : cases) EXPECT_THAT(error_of(variables), HasSubstr(text));
}

LaunchInfo join(const Launcher& launcher, bool needs_store = false) {
  return join_launcher(launcher, needs_store, std::chrono::seconds(10));
}

TEST_F(LaunchersTest, WithoutAKeyValueSpaceGiveAllRanksTheSameStore) {
  const LaunchInfo last = join(launcher_of(srun));
  EXPECT_EQ(last.rank, 3);
  EXPECT_EQ(last.size, 4);
  ASSERT_TRUE(last.coordinator);
  EXPECT_EQ(last.coordinator->host, "node08");
  EXPECT_GE(last.coordinator->port, 61000);
  const LaunchInfo first = join(launcher_of(srun + Variables{{"SLURM_PROCID", "0"}}));
  EXPECT_EQ(first.job, last.job);
  EXPECT_EQ(first.coordinator, last.coordinator);
  const LaunchInfo next = join(launcher_of(srun + Variables{{"SLURM_STEP_ID", "1"}}));
  EXPECT_NE(next.job, last.job);
  EXPECT_EQ(next.job.size(), 32U);
}

TEST_F(LaunchersTest, OfSlurmRefuseAFirstRankThatIsNotOnTheFirstNode) {
  const Launcher launcher =
      launcher_of(srun + Variables{{"SLURM_PROCID", "0"}, {"SLURMD_NODENAME", "node09"}});
  EXPECT_THAT(stores::error_of([&] { (void)join(launcher); }),
              AllOf(HasSubstr("is on node09"), HasSubstr("arbitrary")));
}

TEST_F(LaunchersTest, OfTorchrunLeaveTheAgentItsPort) {
  const LaunchInfo plain = join(launcher_of(torchrun));
  EXPECT_EQ(plain.coordinator, (Endpoint{.host = "10.0.0.1", .port = 29500}));
  const LaunchInfo elastic =
      join(launcher_of(torchrun + Variables{{"TORCHELASTIC_USE_AGENT_STORE", "True"}}));
  EXPECT_NE(elastic.coordinator->port, 29500);
}

// The agent of a node counts the failures of its own workers, and one that replaces another begins
// at 0.
TEST_F(LaunchersTest, OfTorchrunMeetHoweverOftenTheirAgentsHaveRestartedThem) {
  const LaunchInfo first = join(launcher_of(torchrun));
  const LaunchInfo again =
      join(launcher_of(torchrun + Variables{{"TORCHELASTIC_RESTART_COUNT", "2"}}));
  EXPECT_EQ(again.job, first.job);
  EXPECT_EQ(again.coordinator, first.coordinator);
}

TEST_F(LaunchersTest, OfOneHostNeedNoStore) {
  const Variables here = torchrun + Variables{{"LOCAL_WORLD_SIZE", "4"}};
  EXPECT_FALSE(join(launcher_of(here)).coordinator);
  EXPECT_EQ(join(launcher_of(here), true).coordinator->host, "127.0.0.1");
}

TEST(SlurmNodeListTest, IsExpanded) {
  EXPECT_THAT(expand_node_list("node7"), ElementsAre("node7"));
  EXPECT_THAT(expand_node_list("n[01-03,7],login"),
              ElementsAre("n01", "n02", "n03", "n7", "login"));
  EXPECT_THAT(expand_node_list("n[9-11]-ib"), ElementsAre("n9-ib", "n10-ib", "n11-ib"));
  EXPECT_THAT(expand_node_list("r[1-2]n[08,10]"), ElementsAre("r1n08", "r1n10", "r2n08", "r2n10"));
}

TEST(SlurmNodeListTest, ThatIsNoneIsRefused) {
  for (const char* list : {"", ",", "n[", "n]", "n[]", "n[x]", "n[3-1]", "n[1-]", "n[-1]",
                           "n[1-99999999]", "n[1,,2]", "a,,b"}) {
    EXPECT_THAT(stores::error_of([&] { (void)expand_node_list(list); }), HasSubstr("no node list"))
        << list;
  }
}

TEST(SlurmTaskCountsTest, AreExpanded) {
  EXPECT_THAT(expand_task_counts("2(x3),1"), ElementsAre(2, 2, 2, 1));
  EXPECT_THAT(expand_task_counts("4"), ElementsAre(4));
  for (const char* text : {"", "x", "2(x", "2(x0)", "2(x3", "-1"}) {
    EXPECT_TRUE(expand_task_counts(text).empty()) << text;
  }
}

/// Does what mpiexec does for one job, with a socket for each rank; answers like hydra.
class FakeMpiexec {
 public:
  explicit FakeMpiexec(int ranks) : ends_(static_cast<std::size_t>(ranks)) {
    for (auto& [ours, theirs] : ends_) {
      std::array<int, 2> pair{};
      EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair.data()), 0);
      ours = shm::Descriptor(pair[0]);
      theirs = shm::Descriptor(pair[1]);
    }
    thread_ = std::thread([this] { serve(); });
  }
  FakeMpiexec(const FakeMpiexec&) = delete;
  FakeMpiexec& operator=(const FakeMpiexec&) = delete;
  ~FakeMpiexec() { thread_.join(); }

  [[nodiscard]] int descriptor(int rank) const {
    return ends_[static_cast<std::size_t>(rank)].second.get();
  }

 private:
  // Every rank in turn up to the barrier, then again up to its end.
  void serve() {
    for (auto& [ours, theirs] : ends_) serve_until(ours.get(), "cmd=barrier_in");
    for (auto& [ours, theirs] : ends_) say(ours.get(), "cmd=barrier_out");
    for (auto& [ours, theirs] : ends_) {
      serve_until(ours.get(), "cmd=finalize");
      say(ours.get(), "cmd=finalize_ack");
    }
  }

  void serve_until(int socket, const std::string& last) {
    for (std::string line = hear(socket); !line.empty() && line != last; line = hear(socket)) {
      say(socket, answer(line));
    }
  }

  std::string answer(const std::string& line) {
    if (line.starts_with("cmd=init ")) {
      return "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0";
    }
    if (line == "cmd=get_my_kvsname") return "cmd=my_kvsname kvsname=kvs_1_0";
    if (line == "cmd=get_maxes") {
      return "cmd=maxes kvsname_max=256 keylen_max=64 vallen_max=1024";
    }
    const std::string put = "cmd=put kvsname=kvs_1_0 key=rondo-store value=";
    if (line.starts_with(put)) {
      value_ = line.substr(put.size());
      return "cmd=put_result rc=0 msg=success";
    }
    if (line == "cmd=get kvsname=kvs_1_0 key=rondo-store") {
      return "cmd=get_result rc=0 msg=success value=" + value_;
    }
    return "cmd=unknown rc=-1";
  }

  static std::string hear(int socket) {
    std::string line;
    for (char byte = 0; ::read(socket, &byte, 1) == 1 && byte != '\n';) line += byte;
    return line;
  }

  static void say(int socket, std::string line) {
    line += '\n';
    (void)!::write(socket, line.data(), line.size());
  }

  std::vector<std::pair<shm::Descriptor, shm::Descriptor>> ends_;
  std::string value_ = {};
  std::thread thread_;
};

TEST(PmiTest, TellsAllRanksWhatRankZeroSays) {
  const FakeMpiexec mpiexec_of_3(3);
  std::vector<std::future<std::string>> texts;
  for (int rank = 0; rank < 3; ++rank) {
    texts.push_back(std::async(std::launch::async, [&, rank] {
      return exchange_over_pmi(mpiexec_of_3.descriptor(rank), rank,
                               rank == 0 ? "tcp:10.0.0.1:7/job;secret" : "",
                               std::chrono::seconds(30));
    }));
  }
  for (auto& text : texts) EXPECT_EQ(text.get(), "tcp:10.0.0.1:7/job;secret");
}

/// The error of a rank when the launcher answers `answer`, or ends when that is empty.
std::string error_after(const std::string& answer) {
  std::array<int, 2> pair{};
  EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair.data()), 0);
  const shm::Descriptor rank(pair[1]);
  shm::Descriptor launcher(pair[0]);
  (void)!::write(launcher.get(), answer.data(), answer.size());
  if (answer.empty()) launcher = shm::Descriptor();
  return stores::error_of(
      [&] { (void)exchange_over_pmi(rank.get(), 0, "", std::chrono::milliseconds(10)); });
}

TEST(PmiTest, SaysWhatItWasAnswered) {
  EXPECT_THAT(error_after("cmd=response_to_init rc=-1\n"),
              AllOf(HasSubstr("'cmd=response_to_init rc=-1'"), HasSubstr("'cmd=init")));
  EXPECT_THAT(error_after("nonsense\n"), HasSubstr("'nonsense'"));
  EXPECT_THAT(error_after("cmd=resp"), HasSubstr("has not answered"));
}

TEST(PmixTest, ADeadlineFitsIntoItsSeconds) {
  using namespace std::chrono_literals;
  EXPECT_EQ(pmix_timeout(1500ms), 2);
  EXPECT_EQ(pmix_timeout(std::chrono::years(100)), std::numeric_limits<int>::max());
}

TEST(PmiTest, ALauncherThatHasEndedIsAnErrorAndNoSignal) {
  EXPECT_THAT(error_after(""), HasSubstr("cannot be written to"));
}

TEST(PmiTest, AsksOverADescriptorThatIsNoSocket) {
  std::array<int, 2> ends{};
  ASSERT_EQ(::pipe2(ends.data(), O_CLOEXEC), 0);
  const shm::Descriptor reading(ends[0]);
  const shm::Descriptor writing(ends[1]);

  const std::string error = stores::error_of(
      [&] { (void)exchange_over_pmi(writing.get(), 0, "", std::chrono::milliseconds(10)); });

  std::array<char, 100> asked{};
  EXPECT_GT(::read(reading.get(), asked.data(), asked.size() - 1), 0);
  EXPECT_THAT(asked.data(), HasSubstr("cmd=init"));
  EXPECT_THAT(error, HasSubstr("PMI"));
}

}  // namespace
}  // namespace rondo::transport::bootstrap::launchers_test
