// Ranks that are processes: how they meet, also again and again, and what happens when one dies or
// stops.

#include <poll.h>
#include <signal.h>
#include <sys/resource.h>

#include <chrono>
#include <cstdio>
#include <filesystem>
#include <map>
#include <set>
#include <span>
#include <string>
#include <system_error>
#include <vector>

#include <gtest/gtest.h>

#include <rondo/transport/communicator.hpp>
#include <rondo/transport/error.hpp>

#include "support/error_text.hpp"
#include "support/processes.hpp"
#include "support/sanitized.hpp"
#include "support/scratch_folder.hpp"

namespace rondo::transport::process_test {
namespace {

using namespace std::chrono_literals;
using test::Processes;

// Statuses by which a rank tells its parent what it saw.
constexpr int saw_nothing = 10;
constexpr int saw_what_it_should = 0;

// The arena grows after the ranks have met; peers use the new memory without a handshake.
TEST(ProcessTest, ReachesMemoryThatCameLater) {
  test::expect_success(3, [](World& world) {
    std::vector<std::pmr::vector<int>> blocks;
    for (int i = 1; i <= 6; ++i) {
      blocks.emplace_back(std::size_t{300'000} * static_cast<std::size_t>(i), i, &world.arena());
      world.communicator().allreduce(std::span(blocks.back())).wait();
      EXPECT_TRUE(test::all_are(blocks.back(), 3 * i));
    }
  });
}

TEST(ProcessTest, EndsManyWorldsOf4ProcessesAfterABarrier) {
  constexpr int worlds = test::sanitized ? 25 : 200;
  for (int i = 0; i < worlds; ++i) {
    test::expect_success(4, [](World& world) { world.communicator().barrier().wait(); });
    ASSERT_FALSE(HasFailure()) << "world " << i;
  }
}

// The surviving ranks of a job when one is killed: they must see it lost, soon.
int survive(World& world, int victim, bool in_arena) {
  std::pmr::memory_resource* memory = in_arena
                                          ? static_cast<std::pmr::memory_resource*>(&world.arena())
                                          : std::pmr::get_default_resource();
  std::pmr::vector<float> data(500'000, 1.0F, memory);
  try {
    while (true) world.communicator().allreduce(std::span(data)).wait();
  } catch (const Error& error) {
    const std::string what = error.what();
    const bool named =
        error.detail().rank == victim && what.find("allreduce #") != std::string::npos;
    return error.code() == Errc::peer_lost && named ? saw_what_it_should : saw_nothing;
  }
}

TEST(ProcessTest, SeesAKilledRankWithinASecond) {
  for (const bool in_arena : {true, false}) {
    int ready[2];
    ASSERT_EQ(::pipe(ready), 0);
    Processes processes(3, test::quick_options(), [&](World& world) {
      if (world.rank() == 1) (void)!::write(ready[1], "x", 1);
      ::_exit(survive(world, 1, in_arena));
    });
    char byte = 0;
    ASSERT_EQ(::read(ready[0], &byte, 1), 1);

    processes.signal(1, SIGKILL);
    const auto killed = std::chrono::steady_clock::now();
    EXPECT_EQ(processes.wait(0), saw_what_it_should);
    EXPECT_EQ(processes.wait(2), saw_what_it_should);

    EXPECT_LT(std::chrono::steady_clock::now() - killed, 10s);  // 1 s on an idle machine
    EXPECT_EQ(processes.wait(1), 128 + SIGKILL);
    ::close(ready[0]);
    ::close(ready[1]);
  }
}

// How a rank that has given up ends: its World does, or its process as by an uncaught exception.
enum class Leaves { in_order, at_once };

// Rank 3 waits for rank 1, in a group without the rank that was killed. Rank 1 has given up because
// of that rank, and has left. So has rank 0, if it was not killed itself: then rank 3 hears nothing
// of rank 1.
void expect_killed_rank_is_named(int nodes, int victim, Leaves how) {
  WorldOptions options = test::quick_options();
  options.fabric = {.name = "shm", .fake_nodes = nodes};
  int ready[2];
  ASSERT_EQ(::pipe(ready), 0);
  Processes processes(4, test::meet_over_tcp(), [&] {
    World world = World::attach(options);
    Communicator pair = world.communicator().split(world.rank() % 2);
    (void)!::write(ready[1], "x", 1);
    if (world.rank() == victim) ::pause();
    try {
      Communicator& waits_in = world.rank() == 3 ? pair : world.communicator();
      waits_in.barrier().wait();
      ::_exit(saw_nothing);
    } catch (const Error& error) {
      const bool right = error.code() == Errc::peer_lost && error.detail().rank == victim;
      if (!right) std::fprintf(stderr, "rank %d: %s\n", world.rank(), error.what());
      if (!right) ::_exit(saw_nothing);
      if (world.rank() == 1 && how == Leaves::at_once) ::_exit(saw_what_it_should);
    }
  });

  ::close(ready[1]);  // so that a rank that ends before it has written ends the wait for it
  for (int rank = 0; rank < 4; ++rank) {
    char byte = 0;
    ASSERT_EQ(::read(ready[0], &byte, 1), 1);
  }
  processes.signal(victim, SIGKILL);
  for (int rank = 0; rank < 4; ++rank) {
    EXPECT_EQ(processes.wait(rank), rank == victim ? 128 + SIGKILL : saw_what_it_should)
        << "rank " << rank << ", rank " << victim << " killed, " << nodes << " nodes";
  }
  ::close(ready[0]);
}

// The rank that the error of `call` names; -1 when there is none.
template <typename Call>
int rank_at_fault(const Call& call) {
  try {
    call();
  } catch (const Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return error.detail().rank;
  }
  return -1;
}

// The other ranks had the loss of rank 2 behind them when rank 3 was killed.
TEST(ProcessTest, ALossThatWasSurvivedExplainsNoLaterOne) {
  for (const int nodes : {1, 2}) {
    WorldOptions options = test::quick_options();
    options.fabric = {.name = "shm", .fake_nodes = nodes};
    Processes processes(4, test::meet_over_tcp(), [&] {
      World world = World::attach(options);
      Communicator others = world.communicator().split(world.rank() == 2 ? 1 : 0);
      world.communicator().barrier().wait();
      if (world.rank() == 2) ::raise(SIGKILL);
      if (rank_at_fault([&] { world.communicator().barrier().wait(); }) != 2) ::_exit(saw_nothing);
      others.barrier().wait();
      if (world.rank() == 3) ::raise(SIGKILL);
      ::_exit(rank_at_fault([&] { others.barrier().wait(); }) == 3 ? saw_what_it_should
                                                                   : saw_nothing);
    });

    for (const int rank : {0, 1}) {
      EXPECT_EQ(processes.wait(rank), saw_what_it_should) << rank << " of " << nodes << " nodes";
    }
  }
}

// An error names one rank of the lost host.
TEST(ProcessTest, AHostWhoseLossWasSurvivedExplainsNoLaterOne) {
  WorldOptions options = test::quick_options();
  options.fabric = {.name = "shm", .fake_nodes = 2};
  Processes processes(4, test::meet_over_tcp(), [&] {
    World world = World::attach(options);
    Communicator host = world.communicator().split(world.rank() / 2);
    world.communicator().barrier().wait();
    if (world.rank() >= 2) ::raise(SIGKILL);
    if (rank_at_fault([&] { world.communicator().barrier().wait(); }) < 2) ::_exit(saw_nothing);
    host.barrier().wait();
    if (world.rank() == 1) ::raise(SIGKILL);
    ::_exit(rank_at_fault([&] { host.barrier().wait(); }) == 1 ? saw_what_it_should : saw_nothing);
  });

  EXPECT_EQ(processes.wait(0), saw_what_it_should);
}

// Rank 1 has sent a message, which needs nobody, between the loss of rank 2 and its own end.
TEST(ProcessTest, AMessageThatNeedsNobodySurvivesNoLoss) {
  Processes processes(3, test::quick_options(), [](World& world) {
    Communicator others = world.communicator().split(world.rank() == 2 ? 1 : 0);
    world.communicator().barrier().wait();
    if (world.rank() == 2) ::raise(SIGKILL);
    if (world.rank() == 1) {
      if (rank_at_fault([&] { world.communicator().barrier().wait(); }) != 2) ::_exit(saw_nothing);
      const float one = 1.0F;
      others.send(std::span(&one, 1), 0, 0).wait();
      ::_exit(saw_what_it_should);  // as by an exception that nobody has caught
    }
    ::_exit(rank_at_fault([&] { others.barrier().wait(); }) == 2 ? saw_what_it_should
                                                                 : saw_nothing);
  });

  for (const int rank : {0, 1}) EXPECT_EQ(processes.wait(rank), saw_what_it_should) << rank;
}

TEST(ProcessTest, NamesTheKilledRankWhenWhoItWaitsForGaveUp) {
  for (const int nodes : {1, 2}) {
    for (const int victim : {0, 2}) expect_killed_rank_is_named(nodes, victim, Leaves::in_order);
  }
}

TEST(ProcessTest, NamesTheKilledRankWhenWhoItWaitsForHasEndedBecauseOfIt) {
  for (const int nodes : {1, 2}) {
    for (const int victim : {0, 2}) expect_killed_rank_is_named(nodes, victim, Leaves::at_once);
  }
}

void limit_files(rlim_t soft, rlim_t hard) {
  const rlimit limit{.rlim_cur = soft, .rlim_max = hard};
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &limit), 0);
}

// Rank 1 can make no file or shared memory longer: it has no staging buffers, and says so to the
// others, who could wait for it to their deadline.
TEST(ProcessTest, ARankThatRunsOutOfMemoryTellsItsPeersWhy) {
  Processes processes(3, test::quick_options(), [](World& world) {
    std::vector<float> data(100'000, 1.0F);
    if (world.rank() == 1) limit_files(0, 0);
    try {
      world.communicator().allreduce(std::span(data)).wait();
    } catch (const Error& error) {
      const std::string what = error.what();
      const bool told = world.rank() == 1 || (error.detail().rank == 1 &&
                                              what.find("rank 1 (pid ") != std::string::npos);
      const bool right = told && what.find("(ulimit -f)") != std::string::npos;
      ::_exit(error.code() == Errc::out_of_memory && right ? saw_what_it_should : saw_nothing);
    }
    ::_exit(saw_nothing);
  });

  for (int rank = 0; rank < 3; ++rank) EXPECT_EQ(processes.wait(rank), saw_what_it_should);
}

// The hard limit is what the process may have.
TEST(ProcessTest, ASoftLimitOfFilesLimitsNoSharedMemory) {
  test::expect_success(1, [](World& world) {
    rlimit limit{};
    ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &limit), 0);
    limit_files(1, limit.rlim_max);
    EXPECT_NE(world.arena().allocate(10'000'000, 64), nullptr);
  });
}

TEST(ProcessTest, AFlightRecordThatIsTooLongForTheLimitOfFilesIsAnError) {
  const test::ScratchFolder folder;
  test::expect_success(1, [&](World& world) {
    limit_files(100, 100);
    EXPECT_THROW(world.dump_flight_record(folder.path() / "record.json"), std::system_error);
  });
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

TEST(ProcessTest, WarnsOfAStoppedRankAndFailsAtTheDeadline) {
  WorldOptions options = test::quick_options();
  options.stall_warning = 50ms;
  options.deadline = 2s;
  static bool warned = false;
  options.on_stall = [](const Stall& stall) { warned = stall.missing == std::vector{1}; };
  Processes processes(2, options, [](World& world) {
    world.communicator().barrier().wait();
    if (world.rank() == 1) ::raise(SIGSTOP);
    warned = false;
    try {
      world.communicator().barrier().wait();
      ::_exit(saw_nothing);
    } catch (const Error& error) {
      const bool right = error.code() == Errc::deadline_exceeded && error.detail().rank == 1;
      ::_exit(right && warned ? saw_what_it_should : saw_nothing);
    }
  });

  EXPECT_EQ(processes.wait(0), saw_what_it_should);
}

// The ranks of each node wait for all ranks of both, in the end; that are more than one can tell
// of.
TEST(ProcessTest, AllRanksOfTwoNodesNameTheOneThatIsStopped) {
  constexpr int ranks = 12;
  constexpr int stopped = 10;
  WorldOptions options = test::quick_options();
  options.deadline = 6s;
  options.fabric = {.name = "shm", .fake_nodes = 2};
  Processes processes(ranks, test::meet_over_tcp(), [&] {
    World world = World::attach(options);
    std::vector<float> data(10'000, 1.0F);
    world.communicator().allreduce(std::span(data)).wait();
    if (world.rank() == stopped) ::raise(SIGSTOP);
    try {
      world.communicator().allreduce(std::span(data)).wait();
      ::_exit(saw_nothing);
    } catch (const Error& error) {
      if (error.detail().rank == stopped) return;
      std::fprintf(stderr, "rank %d: %s\n", world.rank(), error.what());
      ::_exit(saw_nothing);
    }
  });

  for (int rank = 0; rank < ranks; ++rank) {
    if (rank == stopped) continue;
    EXPECT_EQ(processes.wait(rank), 0) << "rank " << rank;
  }
}

void let_pass(std::chrono::milliseconds time) {
  ::poll(nullptr, 0, static_cast<int>(time.count()));
}

// As after Ctrl-Z and `fg`, or `scontrol suspend` and `resume`: rank 0 is stopped for longer than
// its deadline while it waits for rank 1.
TEST(ProcessTest, TimeInWhichARankIsStoppedDoesNotCount) {
  WorldOptions options = test::quick_options();
  options.deadline = 3s;
  Processes processes(2, options, [](World& world) {
    world.communicator().barrier().wait();
    if (world.rank() == 1) {
      const int other = world.ranks()[0].pid;
      let_pass(100ms);
      ::kill(other, SIGSTOP);
      let_pass(4s);
      ::kill(other, SIGCONT);
      let_pass(200ms);
    }
    world.communicator().barrier().wait();
  });

  EXPECT_EQ(processes.wait(0), 0);
  EXPECT_EQ(processes.wait(1), 0);
}

TEST(ProcessTest, NamesTheRankThatDoesNotCome) {
  WorldOptions options;
  options.bootstrap_deadline = 200ms;
  ::setenv("RONDO_COORDINATOR", ("local:" + test::new_job()).c_str(), 1);
  ::setenv("RONDO_RANK", "0", 1);
  ::setenv("RONDO_SIZE", "3", 1);
  const std::string what = test::error_text<Error>([&] { (void)World::attach(options); });
  for (const char* name : {"RONDO_COORDINATOR", "RONDO_RANK", "RONDO_SIZE"}) ::unsetenv(name);

  EXPECT_NE(what.find("could not connect to rank 1, 2"), std::string::npos) << what;
}

// Some leave without a word to the others: who is early then meets ranks that still meet.
void attach_many_times() {
  constexpr int times = rondo::test::sanitized ? 50 : 200;
  for (int i = 0; i < times; ++i) {
    World world = World::attach(rondo::test::quick_options());
    if (i % 4 != 0) continue;
    std::vector<int> sum{world.rank()};
    world.communicator().allreduce(std::span(sum)).wait();
    ASSERT_EQ(sum[0], 0 + 1 + 2 + 3) << "World " << i;
  }
}

// The variables that the links need, and may add where the user has not set them. See
// docs/embedding.md.
const std::set<std::string> added_by_links = {"UCX_ERROR_SIGNALS",          "UCX_HANDLE_ERRORS",
                                              "UCX_WARN_UNUSED_ENV_VARS",   "FI_UNIVERSE_SIZE",
                                              "FI_OFI_RXM_ENABLE_DYN_RBUF", "FI_OFI_RXM_SAR_LIMIT",
                                              "IPATH_NO_BACKTRACE",         "FI_AV_REMOVE_CLEANUP"};

std::map<std::string, std::string> environment() {
  std::map<std::string, std::string> variables;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string text = *entry;
    const std::size_t end = text.find('=');
    variables[text.substr(0, end)] = text.substr(end + 1);
  }
  return variables;
}

// A host program may use UCX, libfabric and OpenMP itself.
TEST(AttachTest, KeepsTheSettingsOfTheHostProgram) {
  std::vector<std::string> fabrics;
#ifdef RONDO_TEST_UCX
  fabrics.emplace_back("ucx:tcp,self");
#endif
#ifdef RONDO_TEST_OFI
  fabrics.emplace_back("ofi:tcp");
#endif
  for (const std::string& fabric : fabrics) {
    test::expect_success(2, test::meet_over_tcp(), [&] {
      ::setenv("UCX_HANDLE_ERRORS", "bt", 1);
      ::setenv("UCX_TCP_MAX_POLL", "7", 1);
      ::setenv("FI_OFI_RXM_SAR_LIMIT", "32768", 1);
      ::setenv("OMP_NUM_THREADS", "3", 1);
      const auto before = environment();
      WorldOptions options = test::quick_options();
      options.fabric = {.name = fabric, .fake_nodes = 2};
      std::vector<int> data(1000, 1);
      {
        World world = World::attach(options);
        world.communicator().allreduce(std::span(data)).wait();
      }
      for (const auto& [name, value] : environment()) {
        const auto found = before.find(name);
        EXPECT_TRUE(found != before.end() ? value == found->second : added_by_links.contains(name))
            << name << "=" << value;
      }
    });
  }
}

TEST(AttachTest, JoinsTheSameJobManyTimesOverSocketsOfTheNode) {
  rondo::test::expect_success(4, rondo::test::meet_locally(), attach_many_times);
}

TEST(AttachTest, JoinsTheSameJobManyTimesOverTheStore) {
  rondo::test::expect_success(4, rondo::test::meet_over_tcp(), attach_many_times);
}

// The store lives as long as the World.
TEST(AttachTest, JoinsTheSameJobOfSeveralNodes20Times) {
  rondo::test::expect_success(4, rondo::test::meet_over_tcp(), [] {
    WorldOptions options = rondo::test::quick_options();
    options.fabric = rondo::test::fabric_of(rondo::test::Backend::hierarchy, 4);
    for (int i = 0; i < 20; ++i) {
      World world = World::attach(options);
      std::vector<int> sum{world.rank()};
      world.communicator().allreduce(std::span(sum)).wait();
      ASSERT_EQ(sum[0], 0 + 1 + 2 + 3) << "World " << i;
    }
  });
}

}  // namespace
}  // namespace rondo::transport::process_test
