// Launchers that do not know Rondo start four ranks on two hosts, which train together; and wrong
// uses of them end soon, with one error that says what is wrong.

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "hosts/job.hpp"
#include "support/scratch_folder.hpp"

namespace rondo::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using Words = std::vector<std::string>;

Words operator+(Words left, const Words& right) {
  left.insert(left.end(), right.begin(), right.end());
  return left;
}

std::string support(const std::string& name) {
  return (std::filesystem::path(variable("RONDO_HOSTS_SCRIPT")).parent_path() / name).string();
}

bool in_path(const std::string& program) {
  return Program({"sh", "-c", "command -v " + program}).wait().status == 0;
}

// The parameter hash of the last epoch; empty when the run has none.
std::string parameter_hash(const std::filesystem::path& folder) {
  std::ifstream file(folder / "metrics.jsonl");
  const std::string key = "\"parameter_hash\":\"";
  std::string hash;
  for (std::string line; std::getline(file, line);) {
    const std::size_t found = line.find(key);
    if (found != std::string::npos) hash = line.substr(found + key.size(), 32);
  }
  return hash;
}

const Words hydra = {"mpiexec.hydra", "-launcher", "rsh", "-launcher-exec", "SSH"};
const Words open_mpi = {"mpirun.openmpi",     "--mca",       "plm_rsh_agent", "SSH", "--mca",
                        "oob_tcp_if_include", "10.88.0.0/24"};
constexpr const char* secret = "known to the ranks of one job";

/// Runs a launcher on host 1.
class HostsLaunchersTest : public HostsTest {
 protected:
  [[nodiscard]] Ended launch(Words command, const Environment& environment = {}) const {
    for (std::string& word : command) {
      if (word == "SSH") word = support("ssh");
    }
    const Environment as_root = {{"OMPI_ALLOW_RUN_AS_ROOT", "1"},
                                 {"OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1"},
                                 {"SLURM_CONF", slurm_folder() + "/slurm.conf"},
                                 {"HOME", folder_.path().string()}};
    Environment all = as_root;
    all.insert(all.end(), environment.begin(), environment.end());
    return Program(Words{variable("RONDO_HOSTS_SCRIPT"), "exec", "1"} + command, all).wait();
  }

  [[nodiscard]] Words training(const std::string& name) const {
    return {rondo_path(),
            "train",
            variable("RONDO_TEST_CONFIG"),
            "--set",
            "train.epochs=1",
            "--set",
            "data.training=512",
            "--out",
            (folder_.path() / name).string()};
  }

  /// Trains by `launcher`; the hash of the parameters.
  [[nodiscard]] std::string hash_after(const Words& launcher, const Environment& environment = {}) {
    const std::string name = "run" + std::to_string(++runs_);
    const Ended ended = launch(launcher + training(name), environment);
    EXPECT_EQ(ended.status, 0) << ended.out << ended.err;
    EXPECT_THAT(ended.out, HasSubstr("ranks 4 x 1 thread"));
    EXPECT_THAT(ended.out, HasSubstr("nodes 2, joined by"));
    for (const char* rank : {"rank 0 on h1: pid", "rank 3 on h2: pid"}) {
      EXPECT_THAT(ended.out + ended.err, HasSubstr(rank));
    }
    return hash_in(name);
  }

  [[nodiscard]] std::string hash_in(const std::string& name) const {
    return parameter_hash(folder_.path() / name);
  }

  /// The same job started by hand.
  [[nodiscard]] std::string hash_by_hand() const {
    Job job({1, 1, 2, 2});
    job.start(training("by-hand"));
    for (int rank = 0; rank < job.size(); ++rank) {
      const Ended ended = job.wait(rank);
      EXPECT_EQ(ended.status, 0) << ended.out << ended.err;
    }
    const std::string hash = hash_in("by-hand");
    EXPECT_EQ(hash.size(), 32U);
    return hash;
  }

  // One cluster for all tests: its daemons end with the hosts.
  static const std::string& slurm_folder() {
    static const ScratchFolder folder;
    static const std::string path = folder.path().string();
    return path;
  }

  static void start_slurm() {
    static const Ended ended = Program({support("slurm"), "up", "2", slurm_folder()}).wait();
    ASSERT_EQ(ended.status, 0) << ended.out << ended.err;
  }

  void expect_error(const Words& command, const Environment& environment,
                    const std::string& text) const {
    const double began = now();
    const Ended ended = launch(command, environment);
    EXPECT_NE(ended.status, 0);
    EXPECT_THAT(ended.out + ended.err, HasSubstr(text));
    EXPECT_LE(now() - began, 10.0);
  }

 private:
  ScratchFolder folder_;
  int runs_ = 0;
};

TEST_F(HostsLaunchersTest, MpiexecStartsRanksThatTrain) {
  if (!in_path(hydra[0])) GTEST_SKIP() << "left out: there is no " << hydra[0];
  EXPECT_EQ(hash_after(hydra + Words{"-hosts", "h1,h2", "-ppn", "2", "-n", "4"}), hash_by_hand());
}

TEST_F(HostsLaunchersTest, MpirunStartsRanksThatTrain) {
  if (!in_path(open_mpi[0])) GTEST_SKIP() << "left out: there is no " << open_mpi[0];
  EXPECT_EQ(hash_after(open_mpi + Words{"-n", "4", "-H", "h1:2,h2:2"}), hash_by_hand());
}

TEST_F(HostsLaunchersTest, SrunStartsRanksThatTrain) {
  const Ended possible = Program({support("slurm"), "possible"}).wait();
  if (possible.status != 0) GTEST_SKIP() << "left out: " << possible.err;
  start_slurm();
  const Words srun = {"srun", "-N2", "--ntasks-per-node=2"};
  const std::string expected = hash_by_hand();
  EXPECT_EQ(hash_after(srun + Words{"--mpi=pmix"}), expected);
  EXPECT_EQ(hash_after(srun + Words{"--mpi=pmi2"}), expected);
  EXPECT_EQ(hash_after(srun + Words{"--mpi=none"}, {{"RONDO_SECRET", secret}}), expected);
  // Slurm's variables cannot carry a secret.
  expect_error(srun + Words{"--mpi=none"} + training("alone"), {}, "without one; set RONDO_SECRET");
}

TEST_F(HostsLaunchersTest, RondoStartsRanksThatTrain) {
  const Words here = {rondo_path(), "run", "--agent", support("ssh"), "--hosts"};
  const Ended ended =
      launch(here + Words{"h1,h2", "-n", "4", "--threads", "1", "--"} + training("over-ssh"));
  EXPECT_EQ(ended.status, 0) << ended.out << ended.err;
  EXPECT_THAT(ended.err, AllOf(HasSubstr("rank 1 on h1: pid"), HasSubstr("rank 2 on h2: pid")));
  EXPECT_EQ(hash_in("over-ssh"), hash_by_hand());
  expect_error(here + Words{"h1,h9", "--"} + training("missing"), {},
               "Could not resolve hostname h9");
}

// As torchrun sets them, without torchrun: it needs PyTorch, and the variables are all that counts.
TEST_F(HostsLaunchersTest, TorchrunsVariablesLeadToRanksThatTrain) {
  const std::string as_torchrun =
      "host=$0; shift; for local in 0 1; do "
      "RANK=$((2 * host + local)) LOCAL_RANK=$local \"$@\" & pids=\"$pids $!\"; done; "
      "status=0; for pid in $pids; do wait $pid || status=$?; done; exit $status";
  const Environment variables = {{"WORLD_SIZE", "4"},
                                 {"LOCAL_WORLD_SIZE", "2"},
                                 {"MASTER_ADDR", "h1"},
                                 {"MASTER_PORT", "29500"},
                                 {"TORCHELASTIC_RUN_ID", "none"},
                                 {"TORCHELASTIC_USE_AGENT_STORE", "True"},
                                 {"RONDO_SECRET", secret}};
  const auto on_host = [&](int host) {
    return Words{
        variable("RONDO_HOSTS_SCRIPT"), "exec", std::to_string(host + 1), "bash", "-c", as_torchrun,
        std::to_string(host),           "-"};
  };
  Program second(on_host(1) + training("run"), variables);
  Program first(on_host(0) + training("run"), variables);
  const Ended ended = first.wait();
  EXPECT_EQ(ended.status, 0) << ended.out << ended.err;
  EXPECT_EQ(second.wait().status, 0);
  EXPECT_THAT(ended.out, HasSubstr("nodes 2, joined by"));
  EXPECT_EQ(hash_in("run"), hash_by_hand());
}

// mpirun and mpiexec would end the others before they can say anything.
TEST_F(HostsLaunchersTest, AKilledRankIsNamedByTheOthersUnderSrun) {
  const Ended possible = Program({support("slurm"), "possible"}).wait();
  if (possible.status != 0) GTEST_SKIP() << "left out: " << possible.err;
  start_slurm();
  const std::string kill_rank_3 =
      "[ $SLURM_PROCID = 3 ] || exec \"$0\" until-failure; coproc \"$0\" until-failure; "
      "pid=$!; read -u ${COPROC[0]} line; kill -9 $pid; exit 7";
  const Ended ended = launch({"srun", "-N2", "--ntasks-per-node=2", "--mpi=pmi2", "bash", "-c",
                              kill_rank_3, rank_program()});
  EXPECT_EQ(ended.status, 7) << ended.out << ended.err;
  EXPECT_THAT(ended.out, HasSubstr("rank=3 host=h2:")) << ended.err;
}

TEST_F(HostsLaunchersTest, WrongUsesEndSoonWithOneError) {
  if (!in_path(open_mpi[0])) GTEST_SKIP() << "left out: there is no " << open_mpi[0];
  expect_error(open_mpi + Words{"-n", "4", "-H", "h1:1,h2:1"} + training("slots"), {},
               "There are not enough slots available");
  expect_error(open_mpi + Words{"-n", "2", "-H", "h1:1,h9:1"} + training("missing"), {},
               "Could not resolve hostname h9");
  expect_error(
      open_mpi +
          Words{"-n", "2", "-H", "h1:1,h2:1", "-x", "PMI_RANK", "-x", "PMI_SIZE", "-x", "PMI_FD"} +
          training("two"),
      {{"PMI_RANK", "0"}, {"PMI_SIZE", "3"}, {"PMI_FD", "3"}},
      "two launchers contradict each other: OMPI_COMM_WORLD_RANK=");
}

TEST_F(HostsLaunchersTest, AWrongSecretEndsSoonWithOneError) {
  Job job({1, 2});
  job.start_rank(0, {rondo_path(), "bench", "barrier"});
  job.set("RONDO_SECRET", "known to nobody but a stranger");
  const double began = now();
  job.start_rank(1, {rondo_path(), "bench", "barrier"});
  const Ended ended = job.wait(1);
  EXPECT_EQ(ended.status, 4);
  EXPECT_THAT(ended.err, HasSubstr("this rank's secret is not the job's"));
  EXPECT_LE(now() - began, 10.0);
}

}  // namespace
}  // namespace rondo::test
