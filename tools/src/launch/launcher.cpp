#include "launch/launcher.hpp"

#include <fmt/format.h>

#include <cerrno>
#include <cstddef>
#include <cstdio>

#include "exit_status.hpp"
#include "launch/environment.hpp"
#include "launch/flight_records.hpp"
#include "launch/meeting_point.hpp"
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

void print_placement(const Placement& placement, int nodes) {
  if (!placement.note.empty()) fmt::print(stderr, "rondo: {}\n", placement.note);
  if (nodes > 1)
    fmt::print(stderr, "rondo: {} ranks count as {} nodes\n", placement.ranks(), nodes);
}

RankEnvironment environment_for(const Job& job, const MeetingPoint& meeting,
                                const FlightRecords& records, int rank) {
  RankEnvironment environment;
  environment.coordinator = meeting.coordinator;
  environment.rank = rank;
  environment.size = job.placement.ranks();
  environment.threads = job.placement.threads;
  environment.listener = rank == 0 ? meeting.listener.value() : -1;
  environment.secret = meeting.secret.value();
  environment.recorder = records.descriptor(rank);
  environment.settings = environment_of(job.fabric);
  return environment;
}

// The launcher keeps no socket of the job: a port of a rank 0 that is gone must refuse at once.
void start_ranks(const Job& job, int nodes, const FlightRecords& records,
                 const HeldSignals& signals, Supervisor& supervisor) {
  const MeetingPoint meeting = nodes > 1 ? meet_over_loopback() : meet_on_this_node();
  for (int rank = 0; rank < job.placement.ranks(); ++rank) {
    const RankEnvironment environment = environment_for(job, meeting, records, rank);
    Spawn rank_spawn;
    rank_spawn.command = job.command;
    rank_spawn.environment = environment_of(environment);
    for (const int fd : {environment.listener, environment.secret, environment.recorder}) {
      if (fd >= 0) rank_spawn.descriptors.push_back(fd);
    }
    rank_spawn.cpus = cpus_of(job.placement.cores[static_cast<std::size_t>(rank)]);
    rank_spawn.keeps_stdin = rank == 0;
    rank_spawn.output = job.output;
    rank_spawn.signal_mask = signals.previous();
    const pid_t pid = spawn(rank_spawn);
    supervisor.add(rank, pid);
    if (!job.quiet) print_rank(rank, pid, job.placement);
  }
}

}  // namespace

int launch(const Job& job) { return launch(job, HeldSignals()).status; }

JobEnd launch(const Job& job, const HeldSignals& signals) {
  const int nodes = fake_nodes_of(job.fabric, job.placement.ranks());
  const FlightRecords records(job.placement.ranks(), job.flight_record);
  Supervisor supervisor(signals, GracePeriods{}, [&records] { records.write_on_request(); });
  if (!job.quiet) print_placement(job.placement, nodes);
  try {
    start_ranks(job, nodes, records, signals, supervisor);
  } catch (const ExecuteError& error) {
    supervisor.kill_all();
    fmt::print(stderr, "rondo: {}\n", error.what());
    return {.status = error.code().value() == ENOENT ? exit_not_found : exit_cannot_execute};
  }
  const int status = supervisor.wait().exit_status();
  records.write_after_failure(status);
  return {.status = status, .end_signal = supervisor.end_signal()};
}

}  // namespace rondo::tools
