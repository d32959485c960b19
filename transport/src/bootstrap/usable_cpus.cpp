// Tells which CPUs this process may use, and which share of their time.
//
// The CPUs are the mask with which the process was started, and every thread inherits it. With
// OMP_PROC_BIND, OMP_PLACES or GOMP_CPU_AFFINITY, however, the constructor of libgomp binds the
// first thread to one place (usually one core) before main(), and before any constructor of this
// library, because the loader initialises libraries in an order that we do not choose. Then OpenMP
// itself is asked: it has made its places from the mask that it found. The masks of the parent
// and of the cpuset would be wrong instead, because most launchers bind a rank after fork(). A
// program that has set a mask itself, by bind_to(), is not asked again.
//
// A process is in one control group of version 2, or in one group for each controller of version 1,
// or in both; /proc/self/cgroup has their paths. Limits hold for all groups around it, too, so
// every folder up to the mount point is asked, and the least counts. In a container the path may be
// that of the host, which does not exist inside; then the mount point itself is the group.

#include <rondo/transport/usable_cpus.hpp>

#include <dlfcn.h>
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cmath>
#include <cstddef>
#include <fstream>
#include <sstream>
#include <system_error>

namespace rondo::transport {
namespace {

namespace fs = std::filesystem;

std::atomic<bool> program_has_bound = false;

// OpenMP's functions of that name where the process has them; this library needs no OpenMP.
template <class Function>
Function* openmp(const char* name) {
  return reinterpret_cast<Function*>(::dlsym(RTLD_DEFAULT, name));
}

// The CPUs of every place, ascending; no places when OpenMP binds no threads. These functions only
// read, while omp_get_place_num() could bind the calling thread.
std::vector<std::vector<int>> openmp_places() {
  auto* const count = openmp<int()>("omp_get_num_places");
  auto* const size_of = openmp<int(int)>("omp_get_place_num_procs");
  auto* const read = openmp<void(int, int*)>("omp_get_place_proc_ids");
  std::vector<std::vector<int>> places;
  if (count == nullptr || size_of == nullptr || read == nullptr) return places;
  for (int place = 0; place < count(); ++place) {
    auto& cpus = places.emplace_back(static_cast<std::size_t>(size_of(place)));
    read(place, cpus.data());
    std::ranges::sort(cpus);
  }
  return places;
}

// The path of this process's group for `controller`; of version 2 when that is empty.
std::optional<std::string> group_path(const fs::path& root, const std::string& controller) {
  std::ifstream file(root / "proc/self/cgroup");
  for (std::string line; std::getline(file, line);) {
    const std::size_t first = line.find(':');
    const std::size_t second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    std::istringstream names(line.substr(first + 1, second - first - 1));
    bool found = controller.empty() && second == first + 1;
    for (std::string name; std::getline(names, name, ',');) found |= name == controller;
    if (found) return line.substr(second + 1);
  }
  return std::nullopt;
}

// The group's folder below `mount` and all around it, `mount` last.
void add_folders(const fs::path& mount, const std::string& path, std::vector<fs::path>& folders) {
  std::error_code none;
  if (!fs::is_directory(mount, none)) return;
  for (fs::path part = fs::path(path).relative_path(); !part.empty(); part = part.parent_path()) {
    if (fs::is_directory(mount / part, none)) folders.push_back(mount / part);
  }
  folders.push_back(mount);
}

// "max 100000" or "150000 100000" of version 2, two files of version 1.
std::optional<CpuQuota> quota_in(const fs::path& folder, const fs::path& root) {
  std::error_code none;
  const bool is_second = fs::exists(folder / "cpu.max", none);
  const fs::path path = folder / (is_second ? "cpu.max" : "cpu.cfs_quota_us");
  std::ifstream file(path);
  std::ifstream period_file(folder / "cpu.cfs_period_us");
  double quota = 0.0;
  double period = 0.0;
  file >> quota;
  (is_second ? file : period_file) >> period;
  if (quota <= 0.0 || period <= 0.0) return std::nullopt;
  // As it is called on the machine, without the root of a test.
  return CpuQuota{quota / period, "/" + path.lexically_relative(root).string()};
}

}  // namespace

int CpuQuota::threads() const noexcept {
  return static_cast<int>(std::clamp(std::ceil(cpus), 1.0, 1e6));
}

std::vector<fs::path> control_groups(const fs::path& root, const std::string& controller) {
  const fs::path groups = root / "sys/fs/cgroup";
  std::vector<fs::path> folders;
  if (const auto path = group_path(root, "")) {
    add_folders(groups / "unified", *path, folders);
    add_folders(groups, *path, folders);
  }
  if (const auto path = group_path(root, controller)) {
    // "cpu" is often mounted together with "cpuacct", under both names or either.
    for (const std::string& name : {controller, controller + "," + controller + "acct"}) {
      add_folders(groups / name, *path, folders);
    }
  }
  return folders;
}

std::optional<CpuQuota> cpu_quota(const fs::path& root) {
  std::optional<CpuQuota> least;
  for (const fs::path& folder : control_groups(root, "cpu")) {
    auto quota = quota_in(folder, root);
    if (quota && (!least || quota->cpus < least->cpus)) least = std::move(quota);
  }
  return least;
}

int UsableCpus::threads() const noexcept {
  const int count = std::max(static_cast<int>(cpus.size()), 1);
  return quota ? std::min(count, quota->threads()) : count;
}

UsableCpus usable_cpus() {
  UsableCpus usable{.cpus = thread_cpus(), .quota = cpu_quota()};
  if (program_has_bound) return usable;
  const auto places = openmp_places();
  if (places.size() < 2 || std::ranges::count(places, usable.cpus) == 0) return usable;
  usable.bound_by_openmp = true;
  for (const auto& place : places) {
    usable.cpus.insert(usable.cpus.end(), place.begin(), place.end());
  }
  // Places may overlap.
  std::ranges::sort(usable.cpus);
  const auto repeated = std::ranges::unique(usable.cpus);
  usable.cpus.erase(repeated.begin(), repeated.end());
  return usable;
}

std::vector<int> thread_cpus() {
  // The set must have room for all CPUs that the kernel knows, which may be more than CPU_SETSIZE.
  for (std::size_t sets = 1; sets <= 64; sets *= 2) {
    std::vector<cpu_set_t> set(sets);
    const std::size_t bytes = sets * sizeof(cpu_set_t);
    if (::sched_getaffinity(0, bytes, set.data()) != 0) continue;
    std::vector<int> cpus;
    for (std::size_t cpu = 0; cpu < 8 * bytes; ++cpu) {
      if (CPU_ISSET_S(cpu, bytes, set.data())) cpus.push_back(static_cast<int>(cpu));
    }
    return cpus;
  }
  return {};
}

void bind_to(const std::vector<int>& cpus) {
  const auto highest = static_cast<std::size_t>(*std::ranges::max_element(cpus));
  std::vector<cpu_set_t> set(highest / CPU_SETSIZE + 1);
  const std::size_t bytes = set.size() * sizeof(cpu_set_t);
  for (const int cpu : cpus) CPU_SET_S(static_cast<std::size_t>(cpu), bytes, set.data());
  if (::sched_setaffinity(0, bytes, set.data()) != 0) {
    throw std::system_error(errno, std::generic_category(), "sched_setaffinity");
  }
  program_has_bound = true;
}

}  // namespace rondo::transport
