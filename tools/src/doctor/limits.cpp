// Checks of what surrounds a process: the kernel, its limits, its memory and the
// network interfaces of the host.
//
// Each check reads one thing and knows what Rondo needs of it: the numbers here are those that the
// transport asks for when it starts.

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>

#include <rondo/transport/launcher.hpp>

#include "doctor/finding.hpp"
#include "doctor/kernel_files.hpp"
#include "table.hpp"

namespace rondo::tools {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t mebibyte = 1024 * 1024;

// UCX locks 37 MB for each interface with rc.
constexpr std::int64_t lockable_bytes = 64 * mebibyte;

// A rank with its libraries, before it has a model.
constexpr double rank_bytes = 256.0 * mebibyte;

// Addresses that a rank reserves for each rank of its host besides those of its arena, for the
// arenas of all together at least, and for its program.
constexpr std::int64_t addresses_per_rank = 1024 * mebibyte;
constexpr std::int64_t addresses_of_arenas = std::int64_t{2} << 40U;
constexpr std::int64_t own_addresses = 4096 * mebibyte;

// Descriptors that a rank has open before it connects to others, and some of the program's.
constexpr std::int64_t own_descriptors = 24;

// Names of what lies in a folder below `root`, sorted.
std::vector<std::string> entries_of(const fs::path& root, const std::string& folder) {
  std::vector<std::string> names;
  std::error_code none;
  for (const auto& entry : fs::directory_iterator(root / folder, none)) {
    names.push_back(entry.path().filename().string());
  }
  std::ranges::sort(names);
  return names;
}

Facts as_fact(const std::optional<std::int64_t>& number) {
  return fact_if(number.has_value(), number.value_or(0));
}

std::string limit_text(const std::optional<std::int64_t>& limit) {
  return limit ? std::to_string(*limit) : "unlimited";
}

// The speed of a network interface, and how it is called in the report.
struct Interface {
  std::string name = {};
  std::int64_t megabits = 0;  // 0: it does not say
  bool rdma = false;
};

// "100 Gb/sec (4X EDR)"
std::int64_t rate_of(const fs::path& root, const std::string& port) {
  const auto rate = first_line(root, port + "/rate");
  return rate ? static_cast<std::int64_t>(std::strtod(rate->c_str(), nullptr) * 1000.0) : 0;
}

// Made for containers and virtual machines: no way to other hosts.
bool is_internal(const std::string& name) {
  return name == "lo" ||
         std::ranges::any_of(std::array{"docker", "veth", "br-", "virbr", "cni"},
                             [&](const char* start) { return name.starts_with(start); });
}

// The interfaces that are up: of the network, without loopback, then InfiniBand and RoCE.
std::vector<Interface> interfaces_below(const fs::path& root) {
  std::vector<Interface> found;
  for (const std::string& name : entries_of(root, "sys/class/net")) {
    const std::string folder = "sys/class/net/" + name;
    const std::string state = first_line(root, folder + "/operstate").value_or("");
    if (is_internal(name) || state == "down") continue;
    // Virtual interfaces say -1, or nothing at all.
    const auto speed = number_of(first_line(root, folder + "/speed")).value_or(0);
    found.push_back({name, std::max<std::int64_t>(speed, 0)});
  }
  for (const std::string& device : entries_of(root, "sys/class/infiniband")) {
    for (const std::string& port : entries_of(root, "sys/class/infiniband/" + device + "/ports")) {
      const std::string folder = "sys/class/infiniband/" + device + "/ports/" + port;
      const std::string state = first_line(root, folder + "/state").value_or("");
      if (state.find("ACTIVE") == std::string::npos) continue;
      found.push_back({device + ":" + port, rate_of(root, folder), true});
    }
  }
  return found;
}

}  // namespace

Finding check_kernel_release(const Subject& subject) {
  const std::string release =
      first_line(subject.root, "proc/sys/kernel/osrelease").value_or("unknown");
  int major = 0;
  int minor = 0;
  const bool known = std::sscanf(release.c_str(), "%d.%d", &major, &minor) == 2;
  Finding finding{.check = "kernel_release", .found = "Linux " + release};
  finding.source = "/proc/sys/kernel/osrelease";
  finding.values = {{"release", release}};
  if (known && std::pair(major, minor) < std::pair(5, 3)) {
    finding.level = Level::problem;
    finding.means = "Ranks watch each other through pidfds, which Linux has since 5.3.";
    finding.advice = "Use a newer kernel.";
  }
  return finding;
}

// As the transport asks for them: the ranks of a node connect to each other, and rank 0 of several
// nodes has a store.
Finding check_open_files(const Subject& subject) {
  const Limit limit = limit_of(subject.root, "Max open files").value_or(Limit{});
  const std::int64_t on_node = transport::descriptors_to_connect(subject.ranks) + own_descriptors;
  const std::int64_t as_store = std::int64_t{subject.ranks} + 256 + own_descriptors;
  Finding finding{.check = "open_files"};
  finding.found =
      fmt::format("{} (soft), {} (hard); {} {} {} on one host, {} on several",
                  limit_text(limit.soft), limit_text(limit.hard), counted(subject.ranks, "rank"),
                  subject.ranks == 1 ? "needs" : "need", on_node, std::max(on_node, as_store));
  finding.source = "Max open files in /proc/self/limits";
  finding.values = {{"soft", as_fact(limit.soft)},
                    {"hard", as_fact(limit.hard)},
                    {"needed", on_node},
                    {"needed_by_store", std::max(on_node, as_store)}};
  finding.means = "A rank raises the soft limit by itself, up to the hard one.";
  if (!limit.hard || *limit.hard >= std::max(on_node, as_store)) return finding;
  finding.level = *limit.hard < on_node ? Level::problem : Level::warning;
  finding.means = finding.level == Level::problem
                      ? "These ranks cannot connect to each other."
                      : "Ranks of several hosts cannot connect: the store of rank 0 needs more.";
  finding.advice =
      "Raise the hard limit (ulimit -Hn; nofile in /etc/security/limits.conf, "
      "LimitNOFILE of the service).";
  return finding;
}

// As shm::Reserve: each arena of a host may grow to the memory of the machine, up to a sum.
std::int64_t addresses_of(int ranks, std::int64_t memory_bytes) {
  constexpr std::int64_t gibibyte = 1024 * mebibyte;
  const std::int64_t memory = memory_bytes / gibibyte + 1;
  const std::int64_t most = std::max(addresses_of_arenas / gibibyte, 4 * memory);
  const std::int64_t arena = std::min(memory, std::max<std::int64_t>(most / ranks, 1)) * gibibyte;
  return ranks * (arena + addresses_per_rank) + own_addresses;
}

// The ranks of a host map each other's memory at the size that it may grow to.
Finding check_address_space(const Subject& subject) {
  const Limit limit = limit_of(subject.root, "Max address space").value_or(Limit{});
  const auto memory = static_cast<std::int64_t>(subject.machine.memory_bytes);
  const std::int64_t needed = addresses_of(subject.ranks, memory);
  Finding finding{.check = "address_space"};
  finding.found =
      fmt::format("a process may have {} of addresses; {} {} some {}",
                  limit.soft ? in_units(static_cast<double>(*limit.soft)) : "any amount",
                  counted(subject.ranks, "rank"), subject.ranks == 1 ? "needs" : "need",
                  in_units(static_cast<double>(needed)));
  finding.source = "Max address space in /proc/self/limits";
  finding.values = {{"soft_bytes", as_fact(limit.soft)},
                    {"hard_bytes", as_fact(limit.hard)},
                    {"needed_bytes", needed}};
  finding.means = "A rank reserves addresses for all memory of the machine; they cost nothing.";
  if (!limit.soft || *limit.soft >= needed) return finding;
  finding.level = Level::problem;
  finding.means =
      "A rank reserves addresses for all memory of the machine, once for each rank of its host. It "
      "may not, and cannot start.";
  finding.advice =
      "Set ulimit -v unlimited (as in /etc/security/limits.conf); to limit memory, use a control "
      "group or train.memory_limit.";
  return finding;
}

Finding check_locked_memory(const Subject& subject) {
  const Limit limit = limit_of(subject.root, "Max locked memory").value_or(Limit{});
  const bool rdma = !entries_of(subject.root, "sys/class/infiniband").empty();
  const std::optional<std::int64_t>& soft = limit.soft;
  Finding finding{.check = "locked_memory"};
  finding.found = fmt::format("{} may be locked{}",
                              soft ? in_units(static_cast<double>(*soft)) : "any amount of memory",
                              rdma ? ", and there is InfiniBand or RoCE" : "");
  finding.source = "Max locked memory in /proc/self/limits; /sys/class/infiniband";
  finding.values = {
      {"soft_bytes", as_fact(soft)}, {"hard_bytes", as_fact(limit.hard)}, {"rdma_devices", rdma}};
  if (!soft || *soft >= lockable_bytes) return finding;
  finding.level = rdma ? Level::problem : Level::ok;
  finding.means = rdma ? "InfiniBand and RoCE lock what they send from: UCX cannot open them with "
                         "less than some 40 MB for each interface."
                       : "Enough here; only InfiniBand and RoCE need more.";
  if (rdma) {
    finding.advice =
        "Set ulimit -l unlimited (memlock in /etc/security/limits.conf, "
        "LimitMEMLOCK=infinity of slurmd's or sshd's service, docker run --ulimit memlock=-1).";
  }
  return finding;
}

Finding check_memory(const Subject& subject) {
  const auto available = number_of(line_of(subject.root, "proc/meminfo", "MemAvailable"));
  const auto group = free_group_memory(subject.root);
  double bytes = static_cast<double>(available.value_or(0)) * 1024.0;
  const bool by_group = group && (!available || group->amount < bytes);
  if (by_group) bytes = group->amount;
  const double per_rank = bytes / subject.ranks;
  Finding finding{.check = "memory"};
  finding.found = fmt::format("{} free of {}: {} for each of {}", in_units(bytes),
                              in_units(static_cast<double>(subject.machine.memory_bytes)),
                              in_units(per_rank), counted(subject.ranks, "rank"));
  finding.source = by_group ? group->source : "MemAvailable in /proc/meminfo";
  finding.values = {{"free_bytes", bytes},
                    {"machine_bytes", subject.machine.memory_bytes},
                    {"limited_by_control_group", by_group}};
  const bool is_known = available || group;
  if (!is_known || per_rank >= rank_bytes) return finding;
  finding.level = Level::warning;
  finding.means =
      "A rank needs some 256 MiB before it has a model; when memory ends, the kernel "
      "ends a rank (signal 9).";
  finding.advice =
      "Start fewer ranks, or end what uses the memory; rondo plan says what a model "
      "needs.";
  return finding;
}

Finding check_huge_pages(const Subject& subject) {
  const std::string shared = transparent_shared_pages(subject.root);
  Finding finding{.check = "huge_pages"};
  finding.found = "transparent huge pages for shared memory: " + shared;
  finding.source = "/sys/kernel/mm/transparent_hugepage/shmem_enabled, /sys/kernel/mm/hugepages";
  finding.values = {{"transparent_for_shared_memory", shared}};
  for (const HugePagePool& pool : huge_page_pools(subject.root)) {
    const auto bytes = static_cast<double>(pool.page_bytes);
    if (pool.total > 0) {
      finding.found +=
          fmt::format("; {} of {} pages of {} free", pool.free, pool.total, in_units(bytes));
    }
    const std::string name = fmt::format("pool_{}k", pool.page_bytes / 1024);
    finding.values[name + "_total"] = pool.total;
    finding.values[name + "_free"] = pool.free;
  }
  if (shared == "always" || shared == "within_size" || shared == "force") return finding;
  finding.level = Level::note;
  finding.means =
      "Parameters and gradients lie in pages of 4 KiB; with large models the first "
      "touch and misses of the TLB take longer than with pages of 2 MiB.";
  finding.advice = "As root: echo within_size > /sys/kernel/mm/transparent_hugepage/shmem_enabled.";
  return finding;
}

Finding check_network(const Subject& subject) {
  Finding finding{.check = "network"};
  finding.source = "/sys/class/net/*/operstate, speed; /sys/class/infiniband/*/ports/*/state, rate";
  std::vector<std::string> parts;
  for (const Interface& interface : interfaces_below(subject.root)) {
    parts.push_back(
        fmt::format("{} ({}{})", interface.name, interface.rdma ? "RDMA, " : "",
                    interface.megabits > 0
                        ? fmt::format("{} Gbit/s", static_cast<double>(interface.megabits) / 1e3)
                        : "speed not told"));
    finding.values["megabits_" + interface.name] =
        fact_if(interface.megabits > 0, interface.megabits);
  }
  finding.found =
      parts.empty() ? "no interface but loopback is up" : fmt::format("{}", fmt::join(parts, ", "));
  if (parts.empty()) {
    finding.level = Level::note;
    finding.means = "Ranks of other hosts cannot be reached.";
    finding.advice = "Switch an interface on if the job is to run on several hosts.";
  }
  return finding;
}

std::vector<Finding> read_findings(const Subject& subject) {
  std::vector<Finding> findings;
  for (const auto check : {check_processor, check_cpus, check_cpu_quota, check_frequency,
                           check_memory, check_huge_pages, check_address_space, check_locked_memory,
                           check_open_files, check_kernel_release, check_network}) {
    findings.push_back(check(subject));
  }
  return findings;
}

}  // namespace rondo::tools
