// `rondo run --hosts`, with two names of this machine as hosts, and a script in the place of ssh.

#include <pty.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/program.hpp"
#include "support/scratch_folder.hpp"
#include "tools/runs.hpp"

namespace rondo::test::run_on_hosts_test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;
using testing::SizeIs;
using testing::StartsWith;
using testing::UnorderedElementsAre;

class RunOnHostsTest : public testing::Test {
 protected:
  /// The command of a job on "localhost" and 127.0.0.1.
  [[nodiscard]] Words command(const Words& options, const Words& program,
                              const std::string& hosts = two_hosts) const {
    const Words words = {"run", "--hosts", hosts, "--agent", "sh " + agent_};
    return rondo_command(joined(joined(words, options), joined({"--"}, program)));
  }

  [[nodiscard]] Ended run_shell(int ranks, const std::string& script) const {
    return Program(command({"-n", std::to_string(ranks)}, {"sh", "-c", script})).wait();
  }

  static constexpr const char* two_hosts = "localhost,127.0.0.1";

 private:
  ScratchFolder folder_;
  std::string agent_ = folder_
                           .write("agent",
                                  "host=$1; shift\n"
                                  "[ $host = missing ] && echo no such host >&2 && exit 255\n"
                                  "exec sh -c \"$*\"\n")
                           .string();
};

TEST_F(RunOnHostsTest, TellsEachRankItsPlaceInBlocks) {
  const Ended ended = run_shell(5, "echo $RONDO_RANK of $RONDO_SIZE, $RONDO_LOCAL_RANK here");
  EXPECT_EQ(ended.status, 0) << ended.err;
  EXPECT_THAT(lines(ended.out),
              UnorderedElementsAre("0 of 5, 0 here", "1 of 5, 1 here", "2 of 5, 0 here",
                                   "3 of 5, 1 here", "4 of 5, 2 here"));
  EXPECT_THAT(ended.err, HasSubstr("rank 1 on localhost: pid"));
  EXPECT_THAT(ended.err, HasSubstr("rank 2 on 127.0.0.1: pid"));
}

TEST_F(RunOnHostsTest, StartsOneRankOnEachHostUnlessItIsToldTo) {
  const Ended ended = Program(command({}, {"sh", "-c", "echo rank"})).wait();
  EXPECT_THAT(lines(ended.out), SizeIs(2));
}

// The job did not start: the store of the first host was not found.
TEST_F(RunOnHostsTest, TakesALoginScriptThatPrintsWithoutALineBreak) {
  const ScratchFolder folder;
  const auto agent = folder.write("agent", "shift\nprintf 'Welcome: '\nexec sh -c \"$1\"\n");
  const Ended ended = rondo({"run", "--hosts", "localhost", "--agent", "sh " + agent.string(), "--",
                             "sh", "-c", "echo rank"});
  EXPECT_EQ(ended.status, 0) << ended.err;
  EXPECT_EQ(ended.out, "Welcome: rank\n");
}

// The status was 0, and nothing was said.
TEST_F(RunOnHostsTest, FailsWhereTheOutputOfTheFirstHostIsLost) {
  const Words lost = {"sh", "-c", R"(exec "$0" "$@" >/dev/full)"};

  const Ended ended =
      Program(joined(lost, command({"-n", "1"}, {"sh", "-c", "echo rank"}, "localhost"))).wait();

  EXPECT_EQ(ended.status, 1);
  EXPECT_EQ(lines(ended.err).back(),
            "rondo: cannot write to standard output: No space left on device");
}

TEST_F(RunOnHostsTest, LetsRanksFindEachOther) {
  const Ended ended =
      Program(command({"-n", "3"}, {rondo_path(), "bench", "barrier", "--iterations", "3"})).wait();
  EXPECT_EQ(ended.status, 0) << ended.err;
  EXPECT_THAT(ended.err, HasSubstr("3 ranks on 1 node"));
}

// Agents had been started before.
TEST_F(RunOnHostsTest, RefusesTextThatIsNoUtf8) {
  expect_refused(
      Program(command({}, {"echo", "gr\xfcn"})).wait(), 2,
      "rondo: \"gr\uFFFDn\" is not UTF-8, so that it cannot be sent to other hosts; give "
      "the ranks another text, or put it into a file that they read");
}

TEST_F(RunOnHostsTest, ShowsTheSecretToNobody) {
  const Ended ended = run_shell(
      2,
      "secret=/proc/$$/fd/$RONDO_SECRET_FD; grep -acF -f $secret $secret; "
      "cat /proc/[0-9]*/cmdline /proc/$$/environ 2>/dev/null | grep -acF -f $secret; true");
  // Found in its file, and in no command line and no environment.
  EXPECT_THAT(lines(ended.out), UnorderedElementsAre("1", "0", "1", "0")) << ended.err;
}

TEST_F(RunOnHostsTest, EndsWithTheStatusOfTheFirstRankThatFailed) {
  EXPECT_EQ(run_shell(3, "exit $((3 * (RONDO_RANK == 2)))").status, 3);
  EXPECT_EQ(run_shell(3, "[ $RONDO_RANK = 2 ] && kill -9 $$; exit 4").status, 128 + SIGKILL);
}

// Ranks 2 to 4 are on the second host, of which nobody said anything.
TEST_F(RunOnHostsTest, TheFirstRankOfAHostSaysWhichFileIsMissingThere) {
  const Ended ended =
      run_shell(5, "[ $RONDO_RANK -lt 2 ] || exec '" + rondo_path() + "' train absent.toml");
  std::vector<std::string> said = lines(ended.err);
  std::erase_if(
      said, [](const std::string& line) { return line.find("absent.toml") == std::string::npos; });
  EXPECT_EQ(ended.status, 2);
  EXPECT_THAT(said, ElementsAre(StartsWith("rondo: rank 2 on ")));
}

TEST_F(RunOnHostsTest, ForwardsSignalsToTheRanks) {
  Program program(command(
      {"-n", "2"}, {"sh", "-c", "trap 'exit 7' TERM; echo started; while :; do sleep 0.01; done"}));
  program.output_until("started\nstarted\n");
  program.send(SIGTERM);
  EXPECT_EQ(program.wait().status, 7);
}

TEST_F(RunOnHostsTest, AnAgentThatDoesNotExistIsNotFound) {
  expect_refused(rondo({"run", "--hosts", "a,b", "--agent", "no-such-agent", "--", "true"}), 127,
                 "rondo: cannot execute 'no-such-agent'");
}

// As a login script does that exits, or a command that sshd was told to run instead.
TEST_F(RunOnHostsTest, AnAgentThatStartsNothingIsNamed) {
  const Ended ended = rondo({"run", "--hosts", "a", "--agent", "echo", "--", "true"});
  EXPECT_EQ(ended.status, 1);
  EXPECT_THAT(ended.err, HasSubstr("the agent ended on a without starting rondo"));
}

// They have been told to end before, and take their time. As with ssh, the part of a host is no
// child of the launcher.
TEST_F(RunOnHostsTest, RanksOfALauncherThatIsGoneMayStillEndInTheirOwnWay) {
  const ScratchFolder folder;
  const auto agent = folder.write("agent", "shift\nsh -c \"$1\"\nexit $?\n");
  const std::string end = (folder.path() / "end").string();
  Program program(rondo_command({"run", "--hosts", "localhost", "--agent", "sh " + agent.string(),
                                 "--", "sh", "-c",
                                 "trap 'n=$((n+1)); [ $n = 1 ] && echo got' TERM; n=0; echo "
                                 "started; while [ $n -lt 2 ]; do sleep 0.01; "
                                 "done; echo >" +
                                     end}));
  program.output_until("started\n");
  program.send(SIGTERM);
  program.output_until("got\n");
  program.send(SIGKILL);
  program.wait();
  while (!std::filesystem::exists(end)) usleep(1000);  // ends by the test's timeout otherwise
}

// One rank fails when it is told to end; of that the part of the host can tell nobody any more.
TEST_F(RunOnHostsTest, RanksOfALauncherThatIsGoneOutliveTheFirstThatEnds) {
  const ScratchFolder folder;
  const std::string path = folder.path().string() + "/";
  // Standard error is a pipe, whose reader the rank ends that fails.
  const auto agent = folder.write(
      "agent", "mkfifo " + path + "errors; cat <" + path + "errors >/dev/null & echo $! >" + path +
                   "reader; shift; sh -c \"$1\" 2>" + path + "errors; exit $?\n");
  const std::string first = "echo $$ >" + path + "first; trap 'kill -9 $(cat " + path +
                            "reader); while (echo >&2); do :; done; exit 7' TERM; echo started; ";
  const std::string second = "trap 'while kill -0 $(cat " + path +
                             "first) 2>/dev/null; do sleep 0.01; done; echo >" + path +
                             "end; exit' TERM; echo started; ";
  Program program(rondo_command({"run", "--hosts", "localhost", "-n", "2", "--agent",
                                 "sh " + agent.string(), "--", "sh", "-c",
                                 "if [ $RONDO_RANK = 0 ]; then " + first + "else " + second +
                                     "fi; while :; do sleep 0.01; done"}));
  program.output_until("started\nstarted\n");
  program.send(SIGKILL);
  program.wait();
  // Ends by the test's timeout otherwise.
  while (!std::filesystem::exists(path + "end")) usleep(1000);
}

// A terminal for `command`, which Ctrl-C comes from; the pid is the command's.
Child start_in_terminal(std::vector<std::string> command, int& terminal) {
  const pid_t pid = forkpty(&terminal, nullptr, nullptr, nullptr);
  if (pid != 0) return Child(pid);
  std::signal(SIGINT, SIG_DFL);  // whoever has started the tests may ignore it
  std::vector<char*> arguments;
  for (std::string& argument : command) arguments.push_back(argument.data());
  arguments.push_back(nullptr);
  execv(arguments[0], arguments.data());
  _exit(99);
}

std::string read_until(int terminal, const std::string& text) {
  std::string output;
  for (char byte = 0; output.find(text) == std::string::npos && read(terminal, &byte, 1) == 1;) {
    output += byte;
  }
  return output;
}

// As with ssh, the part of a host stays when the agent is killed. SIGTERM is what ranks get whose
// launcher is gone.
TEST_F(RunOnHostsTest, ASecondCtrlCKillsTheRanksAtOnce) {
  const ScratchFolder folder;
  const auto agent = folder.write("agent", "shift\nsetsid -w sh -c \"$1\"\nexit $?\n");
  const std::string mark = (folder.path() / "terminated").string();
  int terminal = -1;
  Child launcher =
      start_in_terminal(rondo_command({"run", "--hosts", "localhost", "--agent",
                                       "sh " + agent.string(), "--", "sh", "-c",
                                       "trap 'echo >" + mark +
                                           "' TERM; trap 'echo got' INT; echo rank is $$; "
                                           "while :; do sleep 0.01; done"}),
                        terminal);
  read_until(terminal, "rank is ");
  const pid_t rank = std::stoi(read_until(terminal, "\n"));

  ASSERT_EQ(write(terminal, "\x03", 1), 1);
  EXPECT_THAT(read_until(terminal, "got"), HasSubstr("got"));
  ASSERT_EQ(write(terminal, "\x03", 1), 1);

  EXPECT_THAT(read_until(terminal, "signal 9"), HasSubstr("signal 9"));
  EXPECT_EQ(launcher.wait(), 128 + SIGKILL);
  while (::kill(rank, 0) == 0) usleep(1000);  // ends by the test's timeout otherwise
  EXPECT_FALSE(std::filesystem::exists(mark));
  close(terminal);
}

TEST_F(RunOnHostsTest, LeavesNoRankBehindWhenItIsKilled) {
  const ScratchFolder folder;
  const std::string pids = (folder.path() / "pids").string();
  Program program(
      command({"-n", "2"}, {"sh", "-c", "echo $$ >>" + pids + "; echo started; exec sleep 60"}));
  program.output_until("started\nstarted\n");
  program.send(SIGKILL);
  program.wait();

  std::ifstream file(pids);
  for (pid_t pid = 0; file >> pid;) {
    while (::kill(pid, 0) == 0) usleep(1000);  // ends by the test's timeout otherwise
  }
}

// The launcher has a socket for each.
TEST_F(RunOnHostsTest, TriesMoreHostsThanTheSoftLimitOfOpenFiles) {
  const ScratchFolder folder;
  const std::string agent = "sh " + folder.write("agent", "exit 9\n").string();
  std::string hosts = "h0";
  for (int host = 1; host < 40; ++host) hosts += ",h" + std::to_string(host);
  const Ended ended =
      Program({"sh", "-c", "ulimit -Sn 32; exec \"$0\" run --hosts \"$1\" --agent \"$2\" -- true",
               rondo_path(), hosts, agent})
          .wait();
  EXPECT_EQ(ended.status, 9) << ended.err;
}

TEST_F(RunOnHostsTest, NamesAHostThatCannotBeReached) {
  const Ended ended = Program(command({}, {"true"}, "localhost,missing")).wait();
  EXPECT_EQ(ended.status, 255);
  EXPECT_THAT(ended.err, HasSubstr("the job on host missing ended with status 255"));
  EXPECT_THAT(ended.err, HasSubstr("a host may not be reachable by 'sh "));
}

TEST_F(RunOnHostsTest, RefusesWhatMakesNoSense) {
  const std::vector<Mistake> mistakes = {
      {{"--hosts", "a,a"}, "names a twice"},
      {{"--hosts", "a,-b"}, "'-b' is no host"},
      {{"--hosts", "a,b", "-n", "1"}, "fewer than the 2 hosts"},
      {{"--hosts", "a,b", "--fake-nodes", "2"}, "--fake-nodes is about one machine"},
      {{"--hosts", "a", "--agent", " "}, "--agent names no command"}};
  for (const Mistake& mistake : mistakes) {
    const Words options = joined({"run"}, mistake.arguments);
    expect_refused(rondo(joined(options, {"--", "true"})), 2, mistake.said);
  }
}

TEST_F(RunOnHostsTest, IsNoCommandForUsers) {
  EXPECT_THAT(rondo({"run", "--help"}).out, Not(HasSubstr("--part")));
  EXPECT_THAT(rondo({"run", "--part"}, {}, "{}\n").err, HasSubstr("only for rondo run --hosts"));
  EXPECT_THAT(rondo({"run", "--part"}, {}, "{\"version\": \"0\"}\n").err,
              HasSubstr("install the same on all hosts"));
}

}  // namespace
}  // namespace rondo::test::run_on_hosts_test
