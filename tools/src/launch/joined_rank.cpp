// Joins a World, and settles which cores and threads a rank has when its launcher was not ours.
//
// mpirun binds each rank to cores of its own, srun gives a step's tasks of one node the same set or
// sets of their own, mpiexec and torchrun leave all cores to everyone: which of these it was shows
// only when the ranks of a host compare their sets. They can do so once they have joined, so the
// World borrows a team whose threads are filled in afterwards; no kernel has run before.

#include "launch/joined_rank.hpp"

#include <algorithm>
#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include <rondo/transport/communicator.hpp>
#include <rondo/transport/usable_cpus.hpp>

#include "failure.hpp"
#include "launch/environment.hpp"
#include "say.hpp"
#include "table.hpp"
#include "world.hpp"

namespace rondo::tools {
namespace {

// A team whose threads become known after a World has borrowed it.
class LateTeam final : public transport::Team {
 public:
  void fill(std::unique_ptr<transport::Team> team) { team_ = std::move(team); }

  [[nodiscard]] int size() const noexcept override { return team_ ? team_->size() : 1; }

  void run(void (*part)(void* context, int index), void* context) override {
    if (team_) {
      team_->run(part, context);
    } else {
      part(context, 0);
    }
  }

 private:
  std::unique_ptr<transport::Team> team_ = {};
};

CpuSet own_set() {
  CpuSet set{};
  for (const int cpu : transport::usable_cpus().cpus) {
    const auto word = static_cast<std::size_t>(cpu) / 64;
    if (word >= set.size()) return {};
    set[word] |= std::int64_t{1} << (cpu % 64);
  }
  return set;
}

bool overlap(const CpuSet& left, const CpuSet& right) {
  for (std::size_t i = 0; i < left.size(); ++i) {
    if ((left[i] & right[i]) != 0) return true;
  }
  return false;
}

std::vector<CpuSet> gather_sets(transport::World& world) {
  const CpuSet mine = own_set();
  std::vector<std::int64_t> all(mine.size() * static_cast<std::size_t>(world.size()));
  world.communicator().allgather(std::span<const std::int64_t>(mine), std::span(all)).wait();
  std::vector<CpuSet> sets(static_cast<std::size_t>(world.size()));
  for (std::size_t r = 0; r < sets.size(); ++r) {
    std::copy_n(all.begin() + static_cast<std::ptrdiff_t>(r * mine.size()), mine.size(),
                sets[r].begin());
  }
  return sets;
}

// The ranks of this host, fake nodes or not, and which of them this one is.
struct HostRanks {
  std::vector<CpuSet> sets = {};
  std::size_t index = 0;
};

HostRanks ranks_of_host(transport::World& world) {
  const std::vector<CpuSet> sets = gather_sets(world);
  const auto ranks = world.ranks();
  const auto own = static_cast<std::size_t>(world.rank());
  HostRanks host;
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    if (ranks[r].host != ranks[own].host) continue;
    if (r == own) host.index = host.sets.size();
    host.sets.push_back(sets[r]);
  }
  return host;
}

// One rank's share of a Placement.
struct Share {
  std::vector<Core> cores = {};  // empty: not bound
  int threads = 1;
  std::string note = {};
};

Share share_of(const HostRanks& host, PlacementRequest request) {
  Machine machine = read_machine();
  const Sharing sharing = sharing_of(host.sets);
  if (sharing == Sharing::overlapping) {
    // No part of such sets would be fair: the user is told, and one thread disturbs the least.
    return {.threads = std::max(request.threads, 1),
            .note = "cores overlap with those of other ranks: not bound"};
  }
  const bool divide = sharing == Sharing::all_alike;
  request.ranks = divide ? static_cast<int>(host.sets.size()) : 1;
  // Cores may be the rank's own, but the control group is not.
  if (!divide && machine.quota) machine.quota->cpus /= static_cast<double>(host.sets.size());
  Placement placement = place(machine, request);
  Share share{.threads = placement.threads, .note = std::move(placement.note)};
  share.cores = std::move(placement.cores[divide ? host.index : 0]);
  return share;
}

void print_share(const transport::World& world, const Share& share) {
  const auto& info = world.ranks()[static_cast<std::size_t>(world.rank())];
  const std::string where = !share.cores.empty() ? describe(share.cores)
                            : share.note.empty() ? "not bound"
                                                 : share.note;
  say("rondo: rank {} on {}: pid {}, {}, {}\n", world.rank(), info.host, info.pid, where,
      counted(share.threads, "thread"));
}

// Binds each thread of the team, because OpenMP gives a thread that it starts the CPUs of the first
// thread, or a place among all CPUs of the process (OMP_PROC_BIND).
void bind_team(transport::Team& team, std::vector<int> cpus) {
  transport::bind_to(cpus);
  team.run([](void* set, int) { transport::bind_to(*static_cast<std::vector<int>*>(set)); }, &cpus);
}

// The ranks of one host fail alike, those of another may not. A mistake is said by rank 0, so on
// other hosts the first rank says it, too.
Share checked_share(const transport::World& world, const HostRanks& host,
                    const PlacementRequest& request) {
  try {
    return share_of(host, request);
  } catch (const UsageError& error) {
    const auto ranks = world.ranks();
    const auto& here = ranks[static_cast<std::size_t>(world.rank())].host;
    if (here != ranks.front().host && host.index == 0) {
      print_of_rank(std::to_string(world.rank()), here, error.what());
    }
    throw;
  }
}

}  // namespace

// A set is empty where a CPU has no bit: it ends at 1,024 processors. A rank alone has its host all
// the same.
Sharing sharing_of(std::span<const CpuSet> sets) {
  if (sets.size() > 1 && std::ranges::count(sets, CpuSet{}) > 0) return Sharing::overlapping;
  bool alike = true;
  bool apart = true;
  for (std::size_t i = 0; i < sets.size(); ++i) {
    alike = alike && sets[i] == sets.front();
    for (std::size_t j = 0; j < i; ++j) apart = apart && !overlap(sets[i], sets[j]);
  }
  if (apart) return Sharing::apart;
  return alike ? Sharing::all_alike : Sharing::overlapping;
}

JoinedRank join_as_rank(transport::WorldOptions options, PlacementRequest request) {
  if (!is_launched_by_others()) {
    const int threads =
        request.threads > 0 ? request.threads : std::max(threads_from_environment(), 1);
    auto team = make_openmp_team(threads);
    options.team = team.get();
    transport::World world = transport::World::attach(options);
    let_speak(Speaker::rank_0);
    return {std::move(team), std::move(world), threads};
  }
  auto team = std::make_unique<LateTeam>();
  options.team = team.get();
  transport::World world = transport::World::attach(options);
  let_speak(Speaker::rank_0);
  const Share share = checked_share(world, ranks_of_host(world), request);
  team->fill(make_openmp_team(share.threads));
  if (!share.cores.empty()) bind_team(*team, cpus_of(share.cores));
  print_share(world, share);
  return {std::move(team), std::move(world), share.threads};
}

}  // namespace rondo::tools
