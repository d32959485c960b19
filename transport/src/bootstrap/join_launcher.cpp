// From what a launcher says to a job that can be joined: its id, its secret, and where its store
// is.
//
// Under PMIx and PMI rank 0 opens the port of its store, draws id and secret, and tells all ranks
// through the launcher's key-value space: one text, which fits into a value of PMI-1. Slurm's and
// torchrun's variables have nowhere to put such a text, but they are the same on all ranks, so id
// and port are derived from them; the secret must come from elsewhere. A host program that has its
// own way to exchange bytes carries the same text.

#include <algorithm>
#include <climits>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <mutex>
#include <utility>
#include <vector>

#include <rondo/transport/error.hpp>

#include "bootstrap/auth.hpp"
#include "bootstrap/interfaces.hpp"
#include "bootstrap/launchers.hpp"
#include "bootstrap/pmix/plugin.hpp"
#include "bootstrap/sockets.hpp"
#include "bootstrap/wire.hpp"
#include "links/plugin.hpp"

namespace rondo::transport::bootstrap {
namespace {

constexpr std::size_t job_bytes = 16;
constexpr std::size_t secret_bytes = 32;
// Values of PMI-1 are of less than 1,024 bytes; the rest is for port, job and secret.
constexpr std::size_t most_address_bytes = 800;
constexpr std::size_t most_text_bytes = 1024;

[[noreturn]] void fail_to_meet(const std::string& what) {
  throw Error(Errc::bootstrap_failed, "bootstrap: " + what);
}

// Where other hosts can reach this one, by preference; the first of several may be dead.
std::string own_addresses(const std::string& pattern) {
  std::string list;
  for (const Interface& interface : select_interfaces(list_interfaces(), pattern)) {
    for (const std::string& address : interface.addresses) {
      // An address of one line alone means nothing without the name of the line.
      if (address.starts_with("fe80:")) continue;
      if (list.size() + address.size() < most_address_bytes) {
        list += (list.empty() ? "" : ",") + address;
      }
    }
  }
  if (list.empty()) fail_to_meet("no network interface of host " + host_name() + " has an address");
  return list;
}

// Rank 0's text for the others, "COORDINATOR;SECRET", and the port of its store, if it needs one.
struct OpenedJob {
  std::string text = {};
  shm::Descriptor listener = {};
};

OpenedJob open_job(bool one_host, bool needs_store, const std::string& interface) {
  const std::string job = hexadecimal(random_bytes(job_bytes));
  if (one_host && !needs_store) return {.text = "local:" + job + ";"};
  // A name stands for all addresses of this host.
  auto listener = listen_at({.host = one_host ? "127.0.0.1" : host_name(), .port = 0});
  const Endpoint store{.host = one_host ? "127.0.0.1" : own_addresses(interface),
                       .port = own_address(listener.get()).port()};
  return {
      .text = "tcp:" + to_string(store) + "/" + job + ";" + hexadecimal(random_bytes(secret_bytes)),
      .listener = std::move(listener)};
}

void read_job(const std::string& text, LaunchInfo& launch) {
  const std::size_t end = text.find(';');
  if (end == std::string::npos || !parse_coordinator(text.substr(0, end), launch)) {
    fail_to_meet("rank 0 told '" + printable(text.substr(0, end)) +
                 "', which is no job; do all ranks run the same version?");
  }
  launch.secret = text.substr(end + 1);
}

bool on_one_host(const Launcher& launcher) { return launcher.local_size == launcher.size; }

LaunchInfo job_through_launcher(const Launcher& launcher, LaunchInfo launch, bool needs_store,
                                std::chrono::milliseconds deadline) {
  static OpenedJob own;  // the port stays open for the process' next World
  if (launch.rank == 0) own = open_job(on_one_host(launcher), needs_store, launch.interface);
  if (launcher.source == Source::pmix) {
    read_job(exchange_over_pmix(launch.rank, own.text, deadline), launch);
  } else {
    const int descriptor = number("PMI_FD", variable("PMI_FD").value_or(""), 0);
    read_job(exchange_over_pmi(descriptor, launch.rank, own.text, deadline), launch);
  }
  launch.listener = own.listener.get();
  return launch;
}

// Equal texts give equal ids and ports, and different ones hardly ever.
std::string digest_of(const std::string& text) { return hmac_sha256("rondo job", text); }

// Ports that Linux gives to no connection unless it is told to.
std::uint16_t derived_port(const std::string& digest) {
  constexpr unsigned first = 61'000;
  constexpr unsigned count = 65'536 - first;
  const auto high = static_cast<unsigned char>(digest[30]);
  const auto low = static_cast<unsigned char>(digest[31]);
  return static_cast<std::uint16_t>(first + (high * 256U + low) % count);
}

std::string needed(const char* name) {
  const auto value = variable(name);
  if (!value) {
    fail_to_meet(
        std::string(name) +
        " is not set, so the ranks cannot find each other by the launcher's variables; set "
        "RONDO_COORDINATOR, RONDO_RANK and RONDO_SIZE");
  }
  return *value;
}

// `port` of the store, if the job's name does not say it.
LaunchInfo derived_job(LaunchInfo launch, const std::string& digest, const std::string& host,
                       std::optional<std::uint16_t> port = std::nullopt) {
  launch.job = hexadecimal(digest.substr(0, job_bytes));
  launch.coordinator = Endpoint{.host = host, .port = port ? *port : derived_port(digest)};
  launch.derived_port = !port;
  return launch;
}

// The first node of a step has rank 0, unless the user has distributed the tasks otherwise.
LaunchInfo job_of_slurm(LaunchInfo launch) {
  const std::string first = expand_node_list(needed("SLURM_STEP_NODELIST")).front();
  const auto here = variable("SLURMD_NODENAME");
  if (launch.rank == 0 && here && *here != first) {
    fail_to_meet("SLURM_PROCID=0 is on " + *here + ", but the first node of the step is " + first +
                 "; leave out --distribution=arbitrary, or use srun --mpi=pmix or --mpi=pmi2");
  }
  const std::string digest =
      digest_of("slurm " + needed("SLURM_JOB_ID") + "." + needed("SLURM_STEP_ID") + " " +
                variable("SLURM_RESTART_COUNT").value_or("0"));
  return derived_job(std::move(launch), digest, first);
}

// torchrun's agent may itself listen at MASTER_PORT, for torch.distributed. Restarts do not tell
// jobs apart: each agent counts those that its own workers have caused. All have ended their
// workers before new ones begin.
LaunchInfo job_of_torchrun(LaunchInfo launch) {
  const std::string host = needed("MASTER_ADDR");
  const std::string port = needed("MASTER_PORT");
  const std::string digest = digest_of("torchrun " + host + ":" + port + " " +
                                       variable("TORCHELASTIC_RUN_ID").value_or(""));
  const bool taken = variable("TORCHELASTIC_USE_AGENT_STORE").has_value();
  const auto own = static_cast<std::uint16_t>(number("MASTER_PORT", port, 1));
  return derived_job(std::move(launch), digest, host, taken ? std::nullopt : std::optional(own));
}

LaunchInfo job_by_variables(const Launcher& launcher, LaunchInfo launch, bool needs_store) {
  launch = launcher.source == Source::slurm ? job_of_slurm(std::move(launch))
                                            : job_of_torchrun(std::move(launch));
  if (!on_one_host(launcher)) return launch;
  // Ranks of one host need no name of it, and no secret.
  launch.coordinator->host = "127.0.0.1";
  if (!needs_store) launch.coordinator.reset();
  return launch;
}

// Returns the result of `make`, or "!" and what it throws: the other ranks must not wait for a rank
// that has failed before it could exchange anything.
template <typename Make>
std::string text_or_problem(Make make) {
  try {
    return make();
  } catch (const std::exception& error) {
    return ("!" + std::string(error.what())).substr(0, most_text_bytes);
  }
}

// A text of every rank, in rank order; throws what a rank tells as its problem.
std::vector<std::string> gather_texts(const Allgather& allgather, int ranks,
                                      const std::string& mine) {
  std::vector<std::byte> own(most_text_bytes);
  // The text is not shown: it has the job's secret.
  if (mine.size() > own.size()) {
    fail_to_meet("rank 0 has to tell " + std::to_string(mine.size()) + " bytes, and only " +
                 std::to_string(own.size()) + " fit; choose one interface with RONDO_INTERFACE");
  }
  std::memcpy(own.data(), mine.data(), mine.size());
  std::vector<std::byte> all(own.size() * static_cast<std::size_t>(ranks));
  allgather(own, all);
  std::vector<std::string> texts;
  for (std::size_t at = 0; at < all.size(); at += own.size()) {
    const auto* first = reinterpret_cast<const char*>(&all[at]);
    texts.emplace_back(first, std::find(first, first + own.size(), '\0'));
  }
  for (std::size_t rank = 0; rank < texts.size(); ++rank) {
    if (texts[rank].starts_with('!')) {
      throw Error(Errc::bootstrap_failed,
                  "rank " + std::to_string(rank) + ": " + texts[rank].substr(1));
    }
  }
  return texts;
}

}  // namespace

LaunchInfo join_launcher(const Launcher& launcher, bool needs_store,
                         std::chrono::milliseconds deadline) {
  LaunchInfo launch;
  launch.rank = launcher.rank;
  launch.size = launcher.size;
  read_options(launch);
  check_fake_nodes(launch);
  needs_store = needs_store || launch.fake_nodes > 1;
  if (launcher.source == Source::slurm || launcher.source == Source::torchrun) {
    return job_by_variables(launcher, std::move(launch), needs_store);
  }
  // A process may say only once to its launcher that it begins.
  static std::mutex mutex;
  static std::optional<LaunchInfo> known;
  const std::scoped_lock lock(mutex);
  if (!known) known = job_through_launcher(launcher, std::move(launch), needs_store, deadline);
  return *known;
}

HostedJob join_host_program(int rank, int size, const Allgather& allgather,
                            const FabricOptions& options) {
  HostedJob job;
  LaunchInfo& launch = job.launch;
  launch.rank = rank;
  launch.size = size;
  const auto machines = gather_texts(allgather, size, text_or_problem([&launch] {
                                       read_options(launch);
                                       return machine_key();
                                     }));
  // These are of the World that the environment describes, which this one is not: it may have
  // fewer ranks than that has nodes.
  launch.listener = -1;
  launch.recorder = -1;
  launch.fake_nodes = std::min(launch.fake_nodes, size);
  const bool one_host = std::ranges::all_of(
      machines, [&](const std::string& machine) { return machine == machines.front(); });
  OpenedJob own;
  const std::string mine = text_or_problem([&] {
    if (rank != 0) return std::string();
    const bool needs_store = launch.fake_nodes > 1 || options.fake_nodes > 1;
    const std::string& wanted = options.interface;
    own = open_job(one_host, needs_store, wanted.empty() ? launch.interface : wanted);
    return own.text;
  });
  read_job(gather_texts(allgather, size, mine).front(), launch);
  job.listener = std::move(own.listener);
  launch.listener = job.listener.get();
  return job;
}

int pmix_timeout(std::chrono::milliseconds deadline) noexcept {
  const auto seconds = std::chrono::ceil<std::chrono::seconds>(deadline).count();
  return static_cast<int>(std::min<decltype(seconds)>(seconds, INT_MAX));
}

std::string exchange_over_pmix(int rank, const std::string& mine,
                               std::chrono::milliseconds deadline) {
  constexpr const char* otherwise =
      "; or use a launcher without PMIx: mpiexec of MPICH, srun --mpi=pmi2, or srun --mpi=none "
      "with a secret";
  const PmixPlugin* plugin = nullptr;
  try {
    plugin = static_cast<const PmixPlugin*>(
        load_plugin_object("librondo-pmix.so", "PMIx plug-in", "rondo_pmix_plugin"));
  } catch (const Error& error) {
    fail_to_meet(error.what() + std::string(otherwise));
  }
  const char* problem = "";
  const char* text = plugin->exchange(rank, mine.c_str(), pmix_timeout(deadline), &problem);
  if (text == nullptr) fail_to_meet("the launcher's PMIx: " + std::string(problem) + otherwise);
  return text;
}

}  // namespace rondo::transport::bootstrap
