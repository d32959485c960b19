// The promises of `rondo run`: where ranks run, and with which status it ends.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "support/program.hpp"
#include "support/scratch_folder.hpp"
#include "tools/runs.hpp"

namespace rondo::test::run_test {
namespace {

using testing::Contains;
using testing::HasSubstr;
using testing::SizeIs;
using testing::StartsWith;
using testing::UnorderedElementsAre;

Ended run_shell(int ranks, const std::string& script, const std::string& input = {}) {
  return rondo({"run", "-n", std::to_string(ranks), "--", "sh", "-c", script}, {}, input);
}

// A letter, as ps shows it.
char state_of(pid_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  std::string number;
  std::string name;
  char state = 'Z';
  file >> number >> name >> state;
  return state;
}

// A dead process may remain as a zombie when nobody in the container reaps orphans.
bool is_running(pid_t pid) {
  const char state = state_of(pid);
  return state != 'Z' && state != 'X';
}

TEST(RunTest, TellsEachRankItsPlace) {
  const Ended ended = run_shell(3, "echo $RONDO_RANK of $RONDO_SIZE");
  EXPECT_EQ(ended.status, 0);
  EXPECT_THAT(lines(ended.out), UnorderedElementsAre("0 of 3", "1 of 3", "2 of 3"));
}

TEST(RunTest, GivesAllRanksOfAJobOneCoordinatorOf128Bits) {
  const auto coordinators = lines(run_shell(2, "echo $RONDO_COORDINATOR").out);
  ASSERT_THAT(coordinators, SizeIs(2));
  EXPECT_EQ(coordinators[0], coordinators[1]);
  EXPECT_THAT(coordinators[0], testing::MatchesRegex("local:[0-9a-f]{32}"));
  EXPECT_NE(lines(run_shell(1, "echo $RONDO_COORDINATOR").out).at(0), coordinators[0]);
}

// Rank 0 alone gets the socket where they meet.
TEST(RunTest, LetsFakeNodesMeetOverLoopback) {
  const Ended ended = rondo({"run", "-n", "2", "--fake-nodes", "2", "--", "sh", "-c",
                             "echo $RONDO_RANK $RONDO_COORDINATOR nodes $RONDO_FAKE_NODES "
                             "$(readlink /proc/self/fd/$RONDO_LISTENER)"});
  const std::string meeting = " tcp:127\\.0\\.0\\.1:[0-9]+/[0-9a-f]{32} nodes 2";
  EXPECT_THAT(lines(ended.out),
              UnorderedElementsAre(testing::MatchesRegex("0" + meeting + " socket:.*"),
                                   testing::MatchesRegex("1" + meeting)))
      << ended.err;
}

TEST(RunTest, GivesAllFakeNodesOneSecretThroughADescriptor) {
  const Ended ended =
      rondo({"run", "-n", "2", "--fake-nodes", "2", "--", "sh", "-c",
             "secret=$(cat /proc/self/fd/$RONDO_SECRET_FD); echo $secret; env | grep -c $secret"});

  // Not to be found in the environment, which others may read.
  const auto secrets = lines(ended.out);
  EXPECT_THAT(secrets, SizeIs(4)) << ended.err;
  EXPECT_THAT(secrets, Contains("0").Times(2));
  EXPECT_THAT(secrets, Contains(secrets[0]).Times(2));
  EXPECT_THAT(secrets[0], testing::MatchesRegex("[0-9a-f]{64}"));
}

TEST(RunTest, TellsRanksHowNodesReachEachOther) {
  const Ended ended =
      rondo({"run", "-n", "2", "--fake-nodes", "2", "--fabric", "ucx:tcp", "--interface",
             "lo,^eth*", "--latency-us", "2.5", "--bandwidth-gbs", "1", "--", "sh", "-c",
             "echo $RONDO_FABRIC $RONDO_INTERFACE $RONDO_LATENCY_US $RONDO_BANDWIDTH_GBS"});
  EXPECT_THAT(lines(ended.out), testing::Each("ucx:tcp lo,^eth* 2.5 1")) << ended.err;
}

TEST(RunTest, TakesFakeNodesFromTheEnvironment) {
  const Ended ended = rondo({"run", "-n", "2", "--", "sh", "-c", "echo $RONDO_COORDINATOR"},
                            {{"RONDO_FAKE_NODES", "2"}});
  EXPECT_THAT(lines(ended.out), testing::Each(StartsWith("tcp:127.0.0.1:"))) << ended.err;
}

TEST(RunTest, SetsTheThreadsOfOpenMpToThoseOfTheRankUnlessTheUserHas) {
  const Words run = {
      "run", "-n", "1", "--threads", "1", "--", "sh", "-c", "echo $RONDO_THREADS $OMP_NUM_THREADS"};
  EXPECT_EQ(rondo(run).out, "1 1\n");
  EXPECT_EQ(rondo(run, {{"OMP_NUM_THREADS", "7"}}).out, "1 7\n");
}

TEST(RunTest, BindsRanksToDisjointCores) {
  cpu_set_t cpus{};
  sched_getaffinity(0, sizeof cpus, &cpus);
  if (CPU_COUNT(&cpus) < 2) GTEST_SKIP() << "needs two cores";
  const Ended ended = run_shell(2, "grep Cpus_allowed_list /proc/self/status");
  const auto sets = lines(ended.out);
  ASSERT_THAT(sets, SizeIs(2));
  EXPECT_NE(sets[0], sets[1]);
}

// OpenMP's library binds the launcher's first thread to one core before main().
TEST(RunTest, GivesRanksTheSameCoresWhateverOpenMpIsTold) {
  const std::vector<std::string> run = {
      "run", "-n", "2", "--", "grep", "Cpus_allowed_list", "/proc/self/status"};
  const auto sets = lines(rondo(run).out);
  ASSERT_THAT(sets, SizeIs(2));
  for (const auto& [name, value] : openmp_bindings) {
    EXPECT_THAT(lines(rondo(run, {{name, value}}).out), testing::UnorderedElementsAreArray(sets))
        << name << "=" << value;
  }
}

TEST(RunTest, PrintsWhereEachRankRuns) {
  const Ended ended = run_shell(1, "echo $$");
  EXPECT_THAT(lines(ended.err), Contains(StartsWith("rondo: rank 0: pid " + lines(ended.out)[0])));
}

TEST(RunTest, DoesNotBindMoreRanksThanCoresAndSaysSo) {
  const auto cores = sysconf(_SC_NPROCESSORS_ONLN);
  const Ended ended = run_shell(static_cast<int>(2 * cores + 1), "true");
  EXPECT_EQ(ended.status, 0);
  EXPECT_THAT(ended.err, HasSubstr("not bound"));
}

TEST(RunTest, StartsRanksAsDirectChildren) {
  Program program(
      rondo_command({"run", "-n", "2", "--", "sh", "-c", "echo started; exec sleep 60"}));
  program.output_until("started\nstarted\n");
  EXPECT_THAT(program.children(), SizeIs(2));
}

TEST(RunTest, LetsOnlyRankZeroReadTheStandardInput) {
  const Ended ended = run_shell(2, "echo $RONDO_RANK: $(cat)", "hello\n");
  EXPECT_THAT(lines(ended.out), UnorderedElementsAre("0: hello", "1:"));
}

TEST(RunTest, EndsWithTheStatusOfTheRankThatFailed) {
  const Ended ended = run_shell(2, "exit $((3 * RONDO_RANK))");
  EXPECT_EQ(ended.status, 3);
  EXPECT_THAT(ended.err, HasSubstr("rank 1 (pid "));
  EXPECT_THAT(ended.err, HasSubstr("ended with status 3"));
}

TEST(RunTest, ReportsTheSignalThatEndedARank) {
  const Ended ended = run_shell(2, "[ $RONDO_RANK = 1 ] && kill -9 $$; exit 0");
  EXPECT_EQ(ended.status, 128 + 9);
  EXPECT_THAT(ended.err, HasSubstr("was ended by signal 9 (Killed)"));
}

// The launcher itself ignores it, and what is ignored stays so in a program that is started.
TEST(RunTest, StartsProgramsThatTheLimitOfFileSizesEnds) {
  EXPECT_EQ(run_shell(1, "kill -XFSZ $$; exit 0").status, 128 + SIGXFSZ);
}

TEST(RunTest, TakesStatusFourForAConsequenceUnlessThatIsAllThatHappened) {
  EXPECT_EQ(run_shell(3, "[ $RONDO_RANK = 1 ] && kill -11 $$; exit 4").status, 128 + 11);
  EXPECT_EQ(run_shell(2, "exit $((4 * RONDO_RANK))").status, 4);
}

TEST(RunTest, ForwardsSignalsToTheRanks) {
  Program program(
      rondo_command({"run", "-n", "2", "--", "sh", "-c",
                     "trap 'exit 7' TERM; echo started; while :; do sleep 0.01; done"}));
  program.output_until("started\nstarted\n");
  program.send(SIGTERM);
  EXPECT_EQ(program.wait().status, 7);
}

// As `timeout` sends it, which tells its child and then the child's group.
// Signals that wait are taken one right after the other, in the order of their numbers.
TEST(RunTest, ARequestThatComesTwiceAtOnceIsOne) {
  Program program(rondo_command({"run", "-n", "1", "--", "sh", "-c",
                                 "trap 'echo got' HUP; trap 'exit 7' USR1; echo started; "
                                 "while :; do sleep 0.01; done"}));
  program.output_until("started\n");

  program.send(SIGSTOP);
  while (state_of(program.pid()) != 'T') usleep(1000);  // ends by the test's timeout otherwise
  for (const int signal : {SIGHUP, SIGINT, SIGUSR1, SIGCONT}) program.send(signal);

  const Ended ended = program.wait();
  EXPECT_EQ(ended.status, 7);
  EXPECT_EQ(ended.out, "started\ngot\n");
}

// As under nohup, when the terminal is closed and the job is to end later.
TEST(RunTest, TakesNoSignalThatIsIgnored) {
  Program program(
      {"sh", "-c",
       "trap '' HUP; exec \"$0\" run -n 1 -- sh -c 'trap \"exit 7\" TERM; echo started; "
       "while :; do sleep 0.01; done'",
       rondo_path()});
  program.output_until("started\n");
  program.send(SIGHUP);
  program.send(SIGTERM);
  EXPECT_EQ(program.wait().status, 7);
}

TEST(RunTest, AVariableThatIsEmptyIsNotSet) {
  const Ended ended = rondo({"run", "-n", "1", "--", "sh", "-c", "echo $RONDO_SIZE"},
                            {{"RONDO_RANK", ""}, {"RONDO_FAKE_NODES", ""}, {"RONDO_THREADS", ""}});
  EXPECT_EQ(ended.status, 0) << ended.err;
  EXPECT_EQ(ended.out, "1\n");
}

// The launcher has a file for each rank, of which ranks need not hear.
TEST(RunTest, StartsMoreRanksThanTheSoftLimitOfOpenFiles) {
  const Ended ended =
      Program({"sh", "-c", "ulimit -Sn 32; exec \"$0\" run -n 40 --bind none -- sh -c 'ulimit -Sn'",
               rondo_path()})
          .wait();
  EXPECT_EQ(ended.status, 0) << ended.err;
  EXPECT_EQ(lines(ended.out), std::vector<std::string>(40, "32"));
}

TEST(RunTest, LeavesNoRankBehindWhenItIsKilled) {
  Program program(
      rondo_command({"run", "-n", "2", "--", "sh", "-c", "echo started; exec sleep 60"}));
  program.output_until("started\nstarted\n");
  const auto ranks = program.children();

  program.send(SIGKILL);
  program.wait();

  for (const pid_t rank : ranks) {
    while (is_running(rank)) usleep(1000);  // ends by the test's timeout otherwise
  }
}

// A job whose ranks reduce until somebody ends it; returns once they do.
class EndlessJob {
 public:
  explicit EndlessJob(const Words& options)
      : program_(rondo_command(joined(joined({"run", "-n", "2", "--bind", "none"}, options),
                                      {"--", rondo_path(), "bench", "allreduce", "--sizes", "4M",
                                       "--iterations", "1000000"}))) {
    program_.errors_until("# rank 0 may use");
  }

  [[nodiscard]] Program& program() { return program_; }

 private:
  Program program_;
};

nlohmann::json read_json(const std::filesystem::path& path) {
  return nlohmann::json::parse(contents(path));
}

TEST(RunTest, WritesTheFlightRecordsOfRanksThatWereKilled) {
  const ScratchFolder folder;
  EndlessJob job({"--flight-record", folder.path()});
  const auto ranks = job.program().children();
  ASSERT_THAT(ranks, SizeIs(2));

  for (const pid_t rank : ranks) kill(rank, SIGKILL);  // nobody is left to write them
  const Ended ended = job.program().wait();

  EXPECT_EQ(ended.status, 128 + SIGKILL);
  EXPECT_THAT(lines(ended.err), Contains(HasSubstr("the flight records of 2 of 2 ranks are in")));
  const auto first = read_json(folder.path() / "flight-rank0.json");
  const auto second = read_json(folder.path() / "flight-rank1.json");
  EXPECT_EQ(first["pid"], ranks[0]);
  EXPECT_EQ(second["pid"], ranks[1]);
  EXPECT_EQ(second["rank"], 1);
  EXPECT_TRUE(second["failure"].is_null());
}

TEST(RunTest, WritesTheFlightRecordsOnRequestAndEndsNothing) {
  const ScratchFolder folder;
  EndlessJob job({"--flight-record", folder.path()});

  job.program().send(SIGUSR2);
  const std::string errors = job.program().errors_until("flight-rank*.json");

  EXPECT_THAT(errors, HasSubstr("the flight records of 2 of 2 ranks are in"));
  EXPECT_THAT(job.program().children(), SizeIs(2));
  const auto record = read_json(folder.path() / "flight-rank1.json");
  EXPECT_EQ(record["reason"], "asked for by SIGUSR2");
  EXPECT_EQ(record["size"], 2);
}

TEST(RunTest, SaysNothingOfFlightRecordsThatNobodyMadeOrAskedFor) {
  const ScratchFolder folder;
  const Ended ended =
      rondo({"run", "-n", "2", "--flight-record", folder.path(), "--", "sh", "-c", "kill -9 $$"});
  EXPECT_EQ(ended.status, 128 + SIGKILL);
  EXPECT_THAT(ended.err, testing::Not(HasSubstr("flight")));

  EndlessJob job({});
  for (const pid_t rank : job.program().children()) kill(rank, SIGKILL);
  EXPECT_THAT(job.program().wait().err, testing::Not(HasSubstr("flight")));
}

TEST(RunTest, SaysThatACommandIsNotFound) {
  expect_refused(rondo({"run", "-n", "2", "--", "no-such-program"}), 127,
                 "rondo: cannot execute 'no-such-program': No such file or directory");
}

TEST(RunTest, AllowsMoreThreadsThanCoresWhenTold) {
  const Ended ended = rondo({"run", "-n", "2", "--threads", "4096", "--oversubscribe", "--", "sh",
                             "-c", "echo $RONDO_THREADS"});
  EXPECT_EQ(ended.out, "4096\n4096\n");
}

}  // namespace
}  // namespace rondo::test::run_test
