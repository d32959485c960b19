// Starts the ranks of a job as direct children of this process, and ends with what they ended with.
//
// Before that it prepares how ranks find each other: an id of the job, and between nodes (real or
// fake) a socket that is bound before any rank starts, so that no two jobs can compete for a port.
// The secret travels in an inherited file in memory, never in the environment or among the
// arguments, which other users may read.
//
// Flight recorders live in memory that the launcher shares with
// each rank, so it can still read them when a rank is stuck or gone.
//
// `rondo run` is the launcher alone: any program as the ranks of a job. The program may use the
// library, or be `rondo train` or `rondo bench`, which find by RONDO_RANK that they are ranks
// already. Arguments behind "--" are never read as options of this command.

#include "launch/launcher.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include <rondo/transport/communicator.hpp>
#include <rondo/transport/flight_record.hpp>
#include <rondo/transport/world.hpp>

#include "failure.hpp"
#include "files.hpp"
#include "launch/environment.hpp"
#include "launch/hosts.hpp"
#include "launch/listener.hpp"
#include "launch/open_files.hpp"
#include "launch/spawn.hpp"
#include "machine.hpp"
#include "options.hpp"
#include "say.hpp"
#include "table.hpp"
#include "world.hpp"

namespace rondo::tools {
namespace {

// The flight recorders of a job's ranks, held by their launcher.
class FlightRecords {
 public:
  // `folder`: where they are written when the job fails; empty: nowhere.
  FlightRecords(int first, int ranks, std::filesystem::path folder)
      : first_(first), folder_(std::move(folder)) {
    for (int rank = 0; rank < ranks; ++rank) {
      records_.push_back(transport::FlightRecord::create());
    }
  }

  // The descriptor that the rank inherits.
  [[nodiscard]] int descriptor(int rank) const {
    return records_[static_cast<std::size_t>(rank - first_)].descriptor();
  }

  // Writes the records of all ranks that have any when the job's exit status or the records tell
  // that ranks were killed or lost each other. No record explains any other failure.
  void write_after_failure(int status) const {
    if (folder_.empty() || status == exit_done) return;
    const auto tells = [](const auto& record) { return record.tells_of_failure(); };
    if (status >= signal_base || std::ranges::any_of(records_, tells)) {
      write(folder_, "the job failed");
    }
  }

  // The same when a user asks for it; without a folder to the current one.
  void write_on_request() const { write(folder_.empty() ? "." : folder_, "asked for by SIGUSR2"); }

 private:
  // One line on stderr says how many were written.
  void write(const std::filesystem::path& folder, std::string_view reason) const {
    int written = 0;
    try {
      for (std::size_t r = 0; r < records_.size(); ++r) {
        const auto path = transport::FlightRecord::path_in(folder, first_ + static_cast<int>(r));
        if (records_[r].write(path, reason)) ++written;
      }
    } catch (const std::system_error& error) {
      tell(error.what());
      return;
    }
    if (written == 0) return;
    tell(fmt::format("the flight records of {} of {} ranks are in {}", written, records_.size(),
                     (folder / "flight-rank*.json").string()));
  }

  int first_;
  std::vector<transport::FlightRecord> records_ = {};
  std::filesystem::path folder_;
};

// "rondo: rank 0: pid 123, cores 0-3, 4 threads"; "rank 0 on node1" in a job on several hosts.
void print_rank(const Job& job, int index, pid_t pid) {
  const auto& cores = job.placement.cores[static_cast<std::size_t>(index)];
  say("rondo: rank {}{}: pid {}, {}, {}\n", job.first + index,
      job.host.empty() ? "" : " on " + job.host, pid, cores.empty() ? "not bound" : describe(cores),
      counted(job.placement.threads, "thread"));
}

void print_placement(const Placement& placement, int nodes) {
  if (!placement.note.empty()) say("rondo: {}\n", placement.note);
  if (nodes > 1) say("rondo: {} ranks count as {} nodes\n", placement.ranks(), nodes);
}

// Only rank 0 gets the listening socket; all get the secret and a recorder of their own.
RankEnvironment environment_for(const Job& job, const Bootstrap& bootstrap,
                                const FlightRecords& records, int rank) {
  RankEnvironment environment;
  environment.coordinator = bootstrap.coordinator;
  environment.rank = rank;
  environment.local_rank = rank - job.first;
  environment.size = job.size > 0 ? job.size : job.placement.ranks();
  environment.threads = job.placement.threads;
  environment.listener = rank == 0 ? bootstrap.listener.value() : -1;
  environment.secret = bootstrap.secret.value();
  environment.recorder = records.descriptor(rank);
  environment.settings = environment_of(job.fabric);
  return environment;
}

// Takes the bootstrap with it: the launcher keeps no socket of the job, because a port of a rank 0
// that is gone must refuse at once.
void start_ranks(const Job& job, const Bootstrap bootstrap, const FlightRecords& records,
                 const MoreOpenFiles& files, const HeldSignals& signals, Supervisor& supervisor) {
  for (int index = 0; index < job.placement.ranks(); ++index) {
    const int rank = job.first + index;
    const RankEnvironment environment = environment_for(job, bootstrap, records, rank);
    Spawn rank_spawn;
    rank_spawn.command = job.command;
    rank_spawn.environment = environment_of(environment);
    for (const int fd : {environment.listener, environment.secret, environment.recorder}) {
      if (fd >= 0) rank_spawn.descriptors.push_back(fd);
    }
    rank_spawn.cpus = cpus_of(job.placement.cores[static_cast<std::size_t>(index)]);
    rank_spawn.keeps_stdin = rank == 0 && job.host.empty();
    rank_spawn.output = job.output;
    rank_spawn.signal_mask = signals.previous();
    rank_spawn.open_files = files.limit_before();
    const pid_t pid = start(rank_spawn);
    supervisor.add(rank, pid);
    if (!job.quiet) print_rank(job, index, pid);
  }
}

[[noreturn]] void fail(const char* what) {
  throw std::system_error(errno, std::generic_category(), what);
}

}  // namespace

// From the kernel: the secret must not be guessable.
std::string random_digits(std::size_t bytes) {
  std::vector<unsigned char> bits(bytes);
  if (getrandom(bits.data(), bytes, 0) != static_cast<ssize_t>(bytes)) fail("getrandom");
  std::string text;
  for (const unsigned char byte : bits) text += fmt::format("{:02x}", byte);
  return text;
}

namespace {

constexpr const char* loopback = "127.0.0.1";

Bootstrap bootstrap_with(const std::string& host, Descriptor listener) {
  Bootstrap bootstrap;
  bootstrap.listener = std::move(listener);
  bootstrap.coordinator =
      fmt::format("tcp:{}:{}/{}", host, port_of(bootstrap.listener), random_digits(job_bytes));
  return bootstrap;
}

}  // namespace

// A file, not a pipe: every rank can read it.
Descriptor keep_secret(const std::string& secret) {
  Descriptor file(memfd_create("rondo-secret", MFD_CLOEXEC));
  if (file.value() < 0) fail("memfd_create");
  if (write(file.value(), secret.data(), secret.size()) != static_cast<ssize_t>(secret.size())) {
    fail("write to a file in memory");
  }
  return file;
}

namespace {

// A bootstrap of the same kind as the one that `coordinator` names. Its socket is where that of the
// present one is: ranks without a secret meet on their loopback only, whatever it is called.
Bootstrap similar_to(const std::string& coordinator) {
  const std::string tcp = "tcp:";
  const std::size_t port = coordinator.rfind(':');
  if (!coordinator.starts_with(tcp) || port < tcp.size()) return bootstrap_on_this_node();
  const std::string host = coordinator.substr(tcp.size(), port - tcp.size());
  const char* const now = std::getenv("RONDO_LISTENER");
  const bool inherited = now != nullptr && *now != '\0';
  Descriptor listener = inherited ? listen_beside(std::atoi(now)) : Descriptor();
  // Without one rank 0 has made its own.
  if (listener.value() < 0) listener = listen_as_rank_0(host);
  return bootstrap_with(host, std::move(listener));
}

}  // namespace

// The kernel marks the name of a file that is not there any more.
std::string own_path(const std::filesystem::path& link) {
  constexpr std::string_view mark = " (deleted)";
  std::string path = std::filesystem::read_symlink(link).string();
  if (path.ends_with(mark) && !is_there(path)) path.resize(path.size() - mark.size());
  return path;
}

// The file that is there now, if any, may be of another version: ranks of it may not understand
// this launcher, and runs of two versions are no comparison.
void expect_own_program(const std::filesystem::path& link) {
  const std::string path = own_path(link);
  if (path == std::filesystem::read_symlink(link)) return;
  throw UsageError(path +
                   " has been replaced or removed since this command began; give the same command "
                   "again");
}

std::vector<std::string> own_command(const std::vector<std::string>& arguments) {
  expect_own_program();
  // The program itself, and not the first rondo in PATH.
  std::vector<std::string> command = {own_path()};
  command.insert(command.end(), arguments.begin(), arguments.end());
  return command;
}

int launch_again(const CommandLine& line, const Placement& placement,
                 const LaunchRequest& request) {
  return launch({own_command(line.own), placement, request.fabric, request.flight_record});
}

int launch_or_be_rank(const CommandLine& line, LaunchRequest request, int ranks,
                      const std::function<int()>& as_rank) {
  let_speak(Speaker::first_of_host);
  if (is_rank()) {
    refuse_other_job(request.placement.ranks, request.fabric);
    return as_rank();
  }
  if (request.placement.ranks == 0) request.placement.ranks = ranks;
  return launch_again(line, place(read_machine(), request.placement), request);
}

void refuse_to_be_rank(std::string_view command) {
  if (!is_rank()) return;
  let_speak(Speaker::first_of_host);  // all ranks fail here
  throw UsageError(fmt::format("{} starts ranks of its own; start it without a launcher", command));
}

// Signals that come before the first rank runs are held as well.
int launch(const Job& job) { return launch(job, HeldSignals()).status; }

// Ranks of one node find each other by the job's id alone; between nodes they need a port.
JobEnd launch(const Job& job, const HeldSignals& signals) {
  const int nodes = fake_nodes_of(job.fabric, job.placement.ranks());
  if (!job.quiet) print_placement(job.placement, nodes);
  return launch(job, signals, nodes > 1 ? bootstrap_over_loopback() : bootstrap_on_this_node());
}

JobEnd launch(const Job& job, const HeldSignals& signals, Bootstrap bootstrap) {
  const MoreOpenFiles files(static_cast<std::size_t>(job.placement.ranks()) + files_of_launcher);
  const FlightRecords records(job.first, job.placement.ranks(), job.flight_record);
  Supervisor supervisor(signals, GracePeriods{}, [&records] { records.write_on_request(); });
  try {
    start_ranks(job, std::move(bootstrap), records, files, signals, supervisor);
    // On another host than the launcher's: one that is gone cannot be told anything, and the ranks,
    // which are killed with this process, still have their time.
    if (!job.host.empty()) std::signal(SIGPIPE, SIG_IGN);
  } catch (const ExecuteError& error) {
    supervisor.kill_all();
    say("rondo: {}\n", error.what());
    return {.status = exit_status_of(error)};
  } catch (...) {  // as where there are too many processes: those that were started wait in vain
    supervisor.kill_all();
    throw;
  }
  // The records are read after the last rank has ended: nobody writes to them any more.
  const int status = supervisor.wait().exit_status();
  if (!job.has_refused || !job.has_refused(status)) records.write_after_failure(status);
  return {.status = status, .end_signal = supervisor.end_signal()};
}

Bootstrap bootstrap_on_this_node() {
  Bootstrap bootstrap;
  bootstrap.coordinator = "local:" + random_digits(job_bytes);
  return bootstrap;
}

Bootstrap bootstrap_over_loopback() {
  Bootstrap bootstrap = bootstrap_at(loopback);
  bootstrap.secret = keep_secret(random_digits(secret_bytes));
  return bootstrap;
}

Bootstrap bootstrap_at(const std::string& host) {
  return bootstrap_with(host, listen_on(host == loopback ? INADDR_LOOPBACK : INADDR_ANY));
}

NextBootstrap::NextBootstrap(transport::World& world) {
  const char* now = std::getenv("RONDO_COORDINATOR");
  if (now == nullptr) return;
  if (world.rank() == 0) {
    Bootstrap next = similar_to(now);
    coordinator_ = std::move(next.coordinator);
    listener_ = std::move(next.listener);
  }
  // Over the World that is about to end: it is the only way between the ranks.
  coordinator_ = broadcast_text(world, coordinator_);
  world.communicator().barrier().wait();
}

// World::attach() reads the environment, and takes over the listening socket of rank 0.
void NextBootstrap::prepare() {
  if (coordinator_.empty()) return;
  setenv("RONDO_COORDINATOR", coordinator_.c_str(), 1);
  if (listener_.value() < 0) return;
  setenv("RONDO_LISTENER", std::to_string(listener_.release()).c_str(), 1);
}

void add_run(Command& root) {
  Command run = root.add("run", "Run a program as the ranks of a job, here or on several hosts");
  auto request = std::make_shared<LaunchRequest>();
  auto hosts = std::make_shared<HostsRequest>();
  add_placement_options(run, request->placement);
  add_fabric_options(run, request->fabric);
  add_flight_record_option(run, request->flight_record, "nowhere");
  add_hosts_options(run, *hosts,
                    "Start the ranks on these hosts, in equal blocks, instead of here");
  run.flag("--part", hosts->part, "").hidden();
  run.footer(R"(Write: rondo run [OPTIONS] -- PROGRAM [ARGUMENTS]
A rank learns about its job from RONDO_RANK, RONDO_SIZE, RONDO_LOCAL_RANK, RONDO_THREADS,
and RONDO_COORDINATOR.
SIGUSR2 writes the ranks' flight records (to --flight-record or .) and ends nothing.
Ends with the status of the first rank that failed, or 128 + n when signal n ended it.)");
  run.does([request, hosts](const CommandLine& line) {
    if (hosts->part) return run_part();
    if (line.behind_dashes.empty()) {
      throw UsageError("nothing to run; write: rondo run -n 2 -- PROGRAM ARGUMENTS");
    }
    if (!hosts->names.empty()) return launch_on_hosts(line.behind_dashes, *request, *hosts);
    return launch({line.behind_dashes, place(read_machine(), request->placement), request->fabric,
                   request->flight_record});
  });
}

}  // namespace rondo::tools
