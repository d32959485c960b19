// The parts of this machine, as hwloc and the kernel tell them (cores, caches, memory, huge pages),
// and how its cores are divided among the ranks of a job.
//
// Only what this process may use counts as a core: a launcher, a container or taskset may have left
// it a part of the machine, and ranks must not be placed on the rest. A quota of a control group
// limits the ranks and threads that are chosen here, but it takes no core away.
//
// To place ranks, cores are sorted by NUMA domain, so that equal parts of their list are
// neighbours. With at least one rank per domain each domain is divided among its own ranks; with
// fewer ranks each gets whole domains. Only if a small domain would then have more ranks than
// cores, all cores are divided without regard to domains.

#include "machine.hpp"

#include <fmt/format.h>
#include <hwloc.h>
#include <sys/sysinfo.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstddef>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <span>
#include <stdexcept>
#include <system_error>
#include <utility>

#include "failure.hpp"

namespace rondo::tools {
namespace {

struct DestroyTopology {
  void operator()(hwloc_topology* topology) const noexcept { hwloc_topology_destroy(topology); }
};
using Topology = std::unique_ptr<hwloc_topology, DestroyTopology>;

// hwloc reads what it needs at once; the object is a snapshot.
Topology load_topology() {
  hwloc_topology_t raw = nullptr;
  if (hwloc_topology_init(&raw) != 0) throw std::runtime_error("hwloc cannot be initialised");
  Topology topology(raw);
  if (hwloc_topology_load(raw) != 0) throw std::runtime_error("hwloc cannot read the topology");
  return topology;
}

// Numbers the NUMA nodes in use from 0, in the order of their first core.
class DomainNumbers {
 public:
  int of(const hwloc_obj& core) {
    const int node = core.nodeset != nullptr ? hwloc_bitmap_first(core.nodeset) : 0;
    return numbers_.try_emplace(node, static_cast<int>(numbers_.size())).first->second;
  }
  [[nodiscard]] int count() const noexcept { return static_cast<int>(numbers_.size()); }

 private:
  std::map<int, int> numbers_;
};

// The hardware threads of a core that the process may use; none: the core is not ours.
std::vector<int> cpus_of(const hwloc_obj& core, const std::vector<int>& usable) {
  std::vector<int> cpus = usable;
  std::erase_if(cpus, [&](int cpu) {
    return hwloc_bitmap_isset(core.cpuset, static_cast<unsigned>(cpu)) == 0;
  });
  return cpus;
}

// Sorted by domain, then by number, so that neighbours in the list are neighbours in the hardware.
void read_cores(hwloc_topology_t topology, const std::vector<int>& usable, Machine& machine) {
  // Some virtual machines show hardware threads only.
  const bool has_cores = hwloc_get_nbobjs_by_type(topology, HWLOC_OBJ_CORE) > 0;
  const hwloc_obj_type_t type = has_cores ? HWLOC_OBJ_CORE : HWLOC_OBJ_PU;
  DomainNumbers domains;
  for (hwloc_obj_t core = hwloc_get_next_obj_by_type(topology, type, nullptr); core != nullptr;
       core = hwloc_get_next_obj_by_type(topology, type, core)) {
    std::vector<int> cpus = cpus_of(*core, usable);
    if (!cpus.empty()) machine.cores.push_back({domains.of(*core), std::move(cpus)});
  }
  machine.numa_domains = std::max(1, domains.count());
  std::ranges::sort(machine.cores, [](const Core& a, const Core& b) {
    return std::pair(a.numa_domain, a.cpus.front()) < std::pair(b.numa_domain, b.cpus.front());
  });
}

// One entry for each level: caches of a level are alike.
void read_caches(hwloc_topology_t topology, Machine& machine) {
  for (const hwloc_obj_type_t type :
       {HWLOC_OBJ_L1CACHE, HWLOC_OBJ_L2CACHE, HWLOC_OBJ_L3CACHE, HWLOC_OBJ_L4CACHE}) {
    hwloc_obj* const cache = hwloc_get_next_obj_by_type(topology, type, nullptr);
    if (cache == nullptr) continue;
    machine.caches.push_back({static_cast<int>(cache->attr->cache.depth), cache->attr->cache.size,
                              hwloc_get_nbobjs_by_type(topology, type)});
  }
}

// Virtual machines may hide it.
std::string processor_of(hwloc_topology_t topology) {
  hwloc_obj* const package = hwloc_get_next_obj_by_type(topology, HWLOC_OBJ_PACKAGE, nullptr);
  const char* model =
      package != nullptr ? hwloc_obj_get_info_by_name(package, "CPUModel") : nullptr;
  return model != nullptr ? model : "unknown";
}

// As the kernel sees it; in a container that is more than the container may use.
std::uint64_t total_memory() {
  struct sysinfo info{};
  if (sysinfo(&info) != 0) throw std::system_error(errno, std::generic_category(), "sysinfo");
  return std::uint64_t{info.totalram} * info.mem_unit;
}

// The kernel says what huge pages it has in a folder for each size.

namespace fs = std::filesystem;

constexpr const char* kernel_memory = "sys/kernel/mm";

std::uint64_t number_of_file(const fs::path& path) {
  std::uint64_t value = 0;
  std::ifstream(path) >> value;
  return value;
}

// From a folder's name, such as hugepages-2048kB.
std::uint64_t page_bytes_of(const std::string& name) {
  std::uint64_t kibibytes = 0;
  const std::size_t dash = name.find('-');
  if (dash == std::string::npos) return 0;
  std::from_chars(name.data() + dash + 1, name.data() + name.size(), kibibytes);
  return kibibytes * 1024;
}

using Cores = std::vector<Core>;

// Part `index` of `parts` nearly equal parts of `cores`.
Cores part(std::span<const Core> cores, std::size_t index, std::size_t parts) {
  const std::size_t first = cores.size() * index / parts;
  const std::size_t last = cores.size() * (index + 1) / parts;
  return {cores.begin() + static_cast<std::ptrdiff_t>(first),
          cores.begin() + static_cast<std::ptrdiff_t>(last)};
}

// The ranks [first, last) that domain `index` of `domains` houses.
struct RankRange {
  std::size_t first;
  std::size_t last;
};

RankRange ranks_of(std::size_t index, std::size_t domains, std::size_t ranks) {
  return {ranks * index / domains, ranks * (index + 1) / domains};
}

// Cores are sorted by domain.
std::span<const Core> domain(const Cores& cores, int index) {
  const auto range = std::ranges::equal_range(cores, index, {}, &Core::numa_domain);
  return {range.begin(), range.end()};
}

// At least one rank per domain: each domain is divided among its own ranks. Empty when a small
// domain would have more ranks than cores.
std::vector<Cores> divide_domains(const Machine& machine, std::size_t ranks) {
  const auto domains = static_cast<std::size_t>(machine.numa_domains);
  std::vector<Cores> shares;
  for (std::size_t d = 0; d < domains; ++d) {
    const auto cores = domain(machine.cores, static_cast<int>(d));
    const RankRange range = ranks_of(d, domains, ranks);
    const std::size_t parts = range.last - range.first;
    if (parts > cores.size()) return {};
    for (std::size_t i = 0; i < parts; ++i) shares.push_back(part(cores, i, parts));
  }
  return shares;
}

// Fewer ranks than domains: each rank gets whole domains.
std::vector<Cores> gather_domains(const Machine& machine, std::size_t ranks) {
  std::vector<Cores> shares(ranks);
  const auto domains = static_cast<std::size_t>(machine.numa_domains);
  for (std::size_t r = 0; r < ranks; ++r) {
    for (std::size_t d = domains * r / ranks; d < domains * (r + 1) / ranks; ++d) {
      const auto cores = domain(machine.cores, static_cast<int>(d));
      shares[r].insert(shares[r].end(), cores.begin(), cores.end());
    }
  }
  return shares;
}

// Domains first; all cores without regard to domains where that leaves a rank without a core.
std::vector<Cores> divide(const Machine& machine, std::size_t ranks) {
  std::vector<Cores> shares = ranks < static_cast<std::size_t>(machine.numa_domains)
                                  ? gather_domains(machine, ranks)
                                  : divide_domains(machine, ranks);
  if (!shares.empty()) return shares;
  for (std::size_t r = 0; r < ranks; ++r) shares.push_back(part(machine.cores, r, ranks));
  return shares;
}

// One thread is always allowed: ranks may share cores, but threads were asked for on purpose.
void refuse_too_many_threads(const PlacementRequest& request, std::size_t ranks,
                             std::size_t cores) {
  const auto threads = static_cast<std::size_t>(request.threads);
  if (threads <= 1 || ranks * threads <= cores || request.oversubscribe) return;
  throw UsageError(fmt::format(
      "{} ranks x {} threads need {} cores, but only {} can be used here; ask for fewer threads, "
      "or add --oversubscribe",
      ranks, threads, ranks * threads, cores));
}

}  // namespace

std::string host_name() {
  std::array<char, 256> name{};
  return gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "this host";
}

Machine read_machine() {
  const Topology topology = load_topology();
  Machine machine;
  machine.processor = processor_of(topology.get());
  machine.memory_bytes = total_memory();
  machine.numa_memory_bytes = hwloc_get_root_obj(topology.get())->total_memory;
  transport::UsableCpus usable = transport::usable_cpus();
  read_cores(topology.get(), usable.cpus, machine);
  machine.quota = std::move(usable.quota);
  read_caches(topology.get(), machine);
  return machine;
}

int Machine::threads() const noexcept {
  const int count = static_cast<int>(cores.size());
  return quota ? std::min(count, quota->threads()) : count;
}

std::vector<HugePagePool> huge_page_pools(const fs::path& root) {
  std::vector<HugePagePool> pools;
  std::error_code none;
  for (const auto& folder : fs::directory_iterator(root / kernel_memory / "hugepages", none)) {
    const fs::path& path = folder.path();
    pools.push_back({page_bytes_of(path.filename().string()), number_of_file(path / "nr_hugepages"),
                     number_of_file(path / "free_hugepages")});
  }
  std::ranges::sort(pools, {}, &HugePagePool::page_bytes);
  return pools;
}

// The kernel marks the setting in force: "always within_size [never]".
std::string transparent_shared_pages(const fs::path& root) {
  std::ifstream file(root / kernel_memory / "transparent_hugepage" / "shmem_enabled");
  std::string entry;
  while (file >> entry) {
    if (entry.starts_with('[') && entry.ends_with(']')) return entry.substr(1, entry.size() - 2);
  }
  return "unknown";
}

Placement place(const Machine& machine, const PlacementRequest& request) {
  const std::size_t cores = machine.cores.size();
  const auto threads = std::max(machine.threads(), 1);
  const auto ranks = static_cast<std::size_t>(
      request.ranks > 0 ? request.ranks : std::min(machine.numa_domains, threads));
  refuse_too_many_threads(request, ranks, cores);

  Placement placement;
  placement.cores.resize(ranks);
  // Where ranks share cores there are none of their own to bind them to.
  if (ranks > cores) {
    placement.threads = std::max(request.threads, 1);
    placement.note = fmt::format("{} ranks share {} cores: not bound", ranks, cores);
    return placement;
  }
  std::vector<Cores> shares = divide(machine, ranks);
  // All ranks get equally many threads, so the smallest share decides.
  const auto smallest = std::ranges::min(shares, {}, &Cores::size).size();
  const auto fair = std::max<std::size_t>(static_cast<std::size_t>(threads) / ranks, 1);
  placement.threads =
      request.threads > 0 ? request.threads : static_cast<int>(std::min(smallest, fair));
  if (request.binding == Binding::none) {
    placement.note = "not bound, as asked";
  } else if (static_cast<std::size_t>(placement.threads) > smallest) {
    placement.note = fmt::format("{} threads exceed the {} cores of a rank's share: not bound",
                                 placement.threads, smallest);
  } else {
    placement.cores = std::move(shares);
  }
  return placement;
}

std::vector<int> cpus_of(const std::vector<Core>& cores) {
  std::vector<int> cpus;
  for (const Core& core : cores) cpus.insert(cpus.end(), core.cpus.begin(), core.cpus.end());
  return cpus;
}

std::string describe(const std::vector<Core>& cores) {
  std::vector<int> numbers;
  numbers.reserve(cores.size());
  // A core is named by its first hardware thread, as in taskset.
  for (const Core& core : cores) numbers.push_back(core.cpus.front());
  std::ranges::sort(numbers);
  std::string text = numbers.size() == 1 ? "core " : "cores ";
  // Runs of neighbours become "FIRST-LAST".
  for (std::size_t i = 0; i < numbers.size();) {
    std::size_t end = i;
    while (end + 1 < numbers.size() && numbers[end + 1] == numbers[end] + 1) ++end;
    text += fmt::format("{}{}", i > 0 ? "," : "", numbers[i]);
    if (end > i) text += fmt::format("-{}", numbers[end]);
    i = end + 1;
  }
  return text;
}

}  // namespace rondo::tools
