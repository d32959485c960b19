#include "launch/launcher.hpp"

#include <fmt/format.h>

#include <cerrno>
#include <cstddef>
#include <cstdio>

#include "exit_status.hpp"
#include "launch/environment.hpp"
#include "launch/spawn.hpp"
#include "launch/supervisor.hpp"

namespace rondo::tools {
namespace {

std::vector<int> cpus_of(const std::vector<Core>& cores) {
  std::vector<int> cpus;
  for (const Core& core : cores) cpus.insert(cpus.end(), core.cpus.begin(), core.cpus.end());
  return cpus;
}

void print_rank(int rank, pid_t pid, const Placement& placement) {
  const auto& cores = placement.cores[static_cast<std::size_t>(rank)];
  fmt::print(stderr, "rondo: rank {}: pid {}, {}, {} thread{}\n", rank, pid,
             cores.empty() ? "not bound" : describe(cores), placement.threads,
             placement.threads == 1 ? "" : "s");
}

void start_ranks(const Job& job, const HeldSignals& signals, Supervisor& supervisor) {
  const std::string coordinator = make_local_coordinator();
  const int ranks = job.placement.ranks();
  for (int rank = 0; rank < ranks; ++rank) {
    Spawn rank_spawn;
    rank_spawn.command = job.command;
    rank_spawn.environment = environment_of({coordinator, rank, ranks, job.placement.threads});
    rank_spawn.cpus = cpus_of(job.placement.cores[static_cast<std::size_t>(rank)]);
    rank_spawn.keeps_stdin = rank == 0;
    rank_spawn.signal_mask = signals.previous();
    const pid_t pid = spawn(rank_spawn);
    supervisor.add(rank, pid);
    print_rank(rank, pid, job.placement);
  }
}

}  // namespace

int launch(const Job& job) {
  const HeldSignals signals;
  Supervisor supervisor(signals, GracePeriods{});
  if (!job.placement.note.empty()) fmt::print(stderr, "rondo: {}\n", job.placement.note);
  try {
    start_ranks(job, signals, supervisor);
  } catch (const ExecuteError& error) {
    supervisor.kill_all();
    fmt::print(stderr, "rondo: {}\n", error.what());
    return error.code().value() == ENOENT ? exit_not_found : exit_cannot_execute;
  }
  return supervisor.wait().exit_status();
}

}  // namespace rondo::tools
