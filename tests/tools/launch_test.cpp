// Which cores which rank gets, on machines that this one need not be, and which of several failed
// ranks is the cause.

#include "machine.hpp"

#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <exception>
#include <filesystem>
#include <new>
#include <optional>
#include <set>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "failure.hpp"
#include "files.hpp"
#include "launch/joined_rank.hpp"
#include "launch/launcher.hpp"
#include "launch/listener.hpp"
#include "launch/spawn.hpp"
#include "launch/supervisor.hpp"
#include "support/error_text.hpp"
#include "support/scratch_folder.hpp"

namespace rondo::tools::launch_test {
namespace {

namespace fs = std::filesystem;

using testing::Each;
using testing::IsEmpty;
using testing::SizeIs;

// Cores of one thread each, `per_domain` in each NUMA domain.
Machine machine_of(int domains, int per_domain) {
  Machine machine;
  machine.numa_domains = domains;
  for (int cpu = 0; cpu < domains * per_domain; ++cpu) {
    machine.cores.push_back({cpu / per_domain, {cpu}});
  }
  return machine;
}

std::set<int> domains_of(const std::vector<Core>& cores) {
  std::set<int> domains;
  for (const Core& core : cores) domains.insert(core.numa_domain);
  return domains;
}

// The command had no such stream.
TEST(SpawnTest, KeepsAStreamThatIsGivenUnderItsOwnNumber) {
  ASSERT_EQ(fcntl(STDIN_FILENO, F_SETFD, FD_CLOEXEC), 0);
  const pid_t child =
      start({.command = {"sh", "-c", "test -e /proc/$$/fd/0"}, .input = STDIN_FILENO});
  int status = -1;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  fcntl(STDIN_FILENO, F_SETFD, 0);
}

// "Resource temporarily unavailable" alone, and "std::bad_alloc", name no limit that may be raised.
TEST(FailureTest, SaysOfWhatThereIsTooLittle) {
  const auto text_of = [](const auto& error) {
    return describe(std::make_exception_ptr(error)).text;
  };
  const std::error_code again = std::make_error_code(std::errc::resource_unavailable_try_again);
  EXPECT_EQ(text_of(std::system_error(again)),
            "cannot start a thread beyond the limit of processes (ulimit -u, or pids.max of the "
            "control group): Resource temporarily unavailable");
  EXPECT_EQ(text_of(std::system_error(again, "cannot write")),
            "cannot write: Resource temporarily unavailable");
  EXPECT_THAT(text_of(std::bad_alloc()), testing::StartsWith("out of memory (of the machine, "));
}

// As an installation does it while a comparison runs: each later run ended with 127.
TEST(OwnProgramTest, IsRefusedOnceItHasBeenReplaced) {
  const rondo::test::ScratchFolder folder;
  const fs::path link = folder.path() / "exe";
  const std::string program = folder.path() / "rondo";
  fs::create_symlink(program + " (deleted)", link);
  EXPECT_EQ(own_path(link), program);
  EXPECT_THAT(rondo::test::error_text<UsageError>([&] { expect_own_program(link); }),
              testing::StartsWith(program + " has been replaced"));

  // A file may have such a name.
  folder.write("rondo (deleted)", "");
  EXPECT_EQ(own_path(link), program + " (deleted)");
  EXPECT_NO_THROW(expect_own_program(link));
}

// Where a socket is bound, as text.
std::string address_of(const Descriptor& listener) {
  sockaddr_storage storage{};
  socklen_t length = sizeof storage;
  auto* address = reinterpret_cast<sockaddr*>(&storage);
  std::array<char, NI_MAXHOST> text{};
  if (getsockname(listener.value(), address, &length) != 0 ||
      getnameinfo(address, length, text.data(), text.size(), nullptr, 0, NI_NUMERICHOST) != 0) {
    return {};
  }
  return text.data();
}

TEST(ListenerTest, IsWhereTheOtherSocketIs) {
  const Descriptor first = listen_as_rank_0("127.0.0.2");
  const Descriptor second = listen_beside(first.value());
  EXPECT_EQ(address_of(second), "127.0.0.2");
  EXPECT_NE(port_of(second), port_of(first));
  EXPECT_EQ(address_of(listen_beside(listen_on(INADDR_ANY).value())), "0.0.0.0");
  EXPECT_LT(listen_beside(-1).value(), 0);
}

TEST(ListenerTest, TakesAddressesAsTheyAreAndNamesAsAllAddresses) {
  EXPECT_THAT(address_of(listen_as_rank_0("localhost")), testing::AnyOf("127.0.0.1", "::1"));
  EXPECT_THAT(address_of(listen_as_rank_0("node7")), testing::AnyOf("0.0.0.0", "::"));
}

// "listen at a port: Cannot assign requested address" alone told no remedy.
TEST(ListenerTest, NamesTheAddressThatNoInterfaceHas) {
  EXPECT_THAT([] { (void)listen_as_rank_0("192.0.2.1"); },
              testing::ThrowsMessage<std::system_error>(
                  testing::HasSubstr("cannot listen at 192.0.2.1, an address that an interface")));
}

TEST(ListenerTest, TakesAnAddressOfIpv6InBrackets) {
  Descriptor listener;
  try {
    listener = listen_as_rank_0("[::1]");
  } catch (const std::system_error&) {
    GTEST_SKIP() << "no IPv6 here";
  }
  EXPECT_EQ(address_of(listener), "::1");
  EXPECT_EQ(address_of(listen_beside(listener.value())), "::1");
}

TEST(PlacementTest, DefaultsToOneRankPerDomainWithAllOfItsCores) {
  const Placement placement = place(machine_of(2, 8), {});
  EXPECT_EQ(placement.threads, 8);
  ASSERT_THAT(placement.cores, SizeIs(2));
  EXPECT_THAT(placement.cores, Each(SizeIs(8)));
  EXPECT_EQ(domains_of(placement.cores[0]), std::set<int>{0});
  EXPECT_EQ(domains_of(placement.cores[1]), std::set<int>{1});
}

TEST(PlacementTest, GivesEveryCoreToAtMostOneRank) {
  for (int ranks = 1; ranks <= 12; ++ranks) {
    const Placement placement = place(machine_of(3, 4), {.ranks = ranks});

    std::multiset<int> cpus;
    for (const auto& cores : placement.cores) {
      EXPECT_FALSE(cores.empty()) << ranks << " ranks";
      for (const Core& core : cores) cpus.insert(core.cpus.front());
    }
    EXPECT_EQ(cpus.size(), std::set<int>(cpus.begin(), cpus.end()).size()) << ranks << " ranks";
  }
}

TEST(PlacementTest, KeepsARankInsideOneDomainWhenItFits) {
  for (const int ranks : {2, 3, 4, 5, 7, 8}) {
    const Placement placement = place(machine_of(2, 4), {.ranks = ranks});
    for (const auto& cores : placement.cores) EXPECT_THAT(domains_of(cores), SizeIs(1));
  }
}

TEST(PlacementTest, GivesWholeDomainsToFewerRanks) {
  const Placement placement = place(machine_of(4, 2), {.ranks = 2});
  EXPECT_EQ(domains_of(placement.cores[0]), (std::set<int>{0, 1}));
  EXPECT_EQ(domains_of(placement.cores[1]), (std::set<int>{2, 3}));
}

TEST(PlacementTest, TakesTheThreadsOfTheSmallestShare) {
  const Placement placement = place(machine_of(1, 5), {.ranks = 2});
  EXPECT_EQ(placement.threads, 2);
}

TEST(PlacementTest, DividesUnevenDomainsByCoresWhenOneIsTooSmall) {
  Machine machine = machine_of(1, 5);
  machine.cores[4].numa_domain = 1;
  machine.numa_domains = 2;
  const Placement placement = place(machine, {.ranks = 5});
  EXPECT_THAT(placement.cores, Each(SizeIs(1)));
}

TEST(PlacementTest, BindsNobodyWhereCoresDoNotSufficeOrWhenAskedNotTo) {
  const PlacementRequest more_threads = {.ranks = 2, .threads = 3, .oversubscribe = true};
  const PlacementRequest not_bound = {.ranks = 2, .binding = Binding::none};
  for (const auto& [request, threads] :
       {std::pair{PlacementRequest{.ranks = 16}, 1}, {more_threads, 3}, {not_bound, 2}}) {
    const Placement placement = place(machine_of(1, 4), request);
    EXPECT_EQ(placement.threads, threads);
    EXPECT_EQ(placement.ranks(), request.ranks);
    EXPECT_THAT(placement.cores, Each(IsEmpty()));
    EXPECT_FALSE(placement.note.empty());
  }
}

TEST(PlacementTest, RefusesThreadsThatWereAskedForBeyondTheCores) {
  EXPECT_THROW(static_cast<void>(place(machine_of(1, 4), {.ranks = 2, .threads = 3})), UsageError);
}

// The quota is that of all ranks together.
TEST(PlacementTest, ChoosesNoMoreRanksAndThreadsThanAQuotaGrants) {
  Machine machine = machine_of(2, 8);
  machine.quota = transport::CpuQuota{.cpus = 3.5};
  const Placement chosen = place(machine, {});
  EXPECT_EQ(chosen.ranks(), 2);
  EXPECT_EQ(chosen.threads, 2);
  EXPECT_THAT(chosen.cores, Each(SizeIs(8)));
  EXPECT_EQ(place(machine, {.ranks = 6}).threads, 1);
  EXPECT_EQ(place(machine, {.ranks = 2, .threads = 8}).threads, 8) << "as asked";
  machine.quota->cpus = 0.5;
  EXPECT_EQ(place(machine, {}).ranks(), 1);
  EXPECT_EQ(place(machine, {}).threads, 1);
}

TEST(PlacementTest, DescribesCoresInRuns) {
  EXPECT_EQ(describe({{0, {3}}}), "core 3");
  EXPECT_EQ(describe({{0, {0}}, {0, {1}}, {0, {2}}, {1, {8}}}), "cores 0-2,8");
}

// As waitpid() would tell it.
constexpr int exited(int status) { return status << 8; }
constexpr int killed(int signal) { return signal; }

struct Ends {
  std::vector<RankEnd> ends;  // in their order
  int status;
  std::optional<int> cause;  // the rank
};

// A later signal comes before an earlier lost peer; what the launcher ended is a consequence.
TEST(OutcomeTest, IsThatOfTheFirstRankThatFailedByItself) {
  const std::vector<Ends> cases = {
      {{{0, 10, exited(0)}}, 0, {}},
      {{{0, 10, exited(0)}, {2, 12, exited(3)}, {1, 11, exited(2)}}, 3, 2},
      {{{0, 10, exited(4)}, {1, 11, killed(SIGSEGV)}}, 128 + SIGSEGV, 1},
      {{{0, 10, exited(4)}, {1, 11, killed(SIGTERM), true}}, 4, 0}};
  for (const auto& [ends, status, cause] : cases) {
    Outcome outcome;
    for (const RankEnd& end : ends) {
      const bool replaces = outcome.add(end);
      EXPECT_EQ(replaces, end.failed() && outcome.cause()->rank == end.rank);
    }
    EXPECT_EQ(outcome.exit_status(), status);
    EXPECT_EQ(outcome.cause().has_value(), cause.has_value());
    if (cause) {
      EXPECT_EQ(outcome.cause()->rank, *cause);
    }
  }
}

TEST(OutcomeTest, DescribesSignalsByNumberAndName) {
  EXPECT_EQ((RankEnd{1, 123, killed(SIGKILL)}.describe()),
            "rank 1 (pid 123) was ended by signal 9 (Killed)");
  EXPECT_EQ((RankEnd{0, 7, exited(3)}.describe()), "rank 0 (pid 7) ended with status 3");
}

TEST(SharingTest, IsSeenFromTheSetsOfAHost) {
  const CpuSet low{0b0011};
  const CpuSet middle{0b0110};
  const CpuSet high{0b1100};
  EXPECT_EQ(sharing_of(std::vector{low, CpuSet{}}), Sharing::overlapping);
  EXPECT_EQ(sharing_of(std::vector{CpuSet{}}), Sharing::apart);
  EXPECT_EQ(sharing_of(std::vector{low}), Sharing::apart);
  EXPECT_EQ(sharing_of(std::vector{low, high}), Sharing::apart);
  EXPECT_EQ(sharing_of(std::vector{low, low, low}), Sharing::all_alike);
  EXPECT_EQ(sharing_of(std::vector{low, middle, high}), Sharing::overlapping);
  EXPECT_EQ(sharing_of(std::vector{low, high, low}), Sharing::overlapping);
}

}  // namespace
}  // namespace rondo::tools::launch_test
