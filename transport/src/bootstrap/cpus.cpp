#include "bootstrap/cpus.hpp"

#include <fstream>
#include <string>

namespace rondo::transport::rendezvous {
namespace {

// CPUs' worth of time that the control group grants; a large number when it sets no limit.
double quota() {
  std::ifstream file("/sys/fs/cgroup/cpu.max");
  std::string limit;
  double period = 0.0;
  constexpr double unlimited = 1e9;
  if (!(file >> limit >> period) || limit == "max" || period <= 0.0) return unlimited;
  return std::stod(limit) / period;
}

}  // namespace

cpu_set_t own_cpus() {
  cpu_set_t cpus;
  CPU_ZERO(&cpus);
  ::sched_getaffinity(0, sizeof cpus, &cpus);
  return cpus;
}

bool outnumber_cpus(const std::vector<cpu_set_t>& ranks) {
  cpu_set_t all;
  CPU_ZERO(&all);
  for (const cpu_set_t& cpus : ranks) CPU_OR(&all, &all, &cpus);
  const auto count = static_cast<double>(ranks.size());
  return count > static_cast<double>(CPU_COUNT(&all)) || count > quota();
}

}  // namespace rondo::transport::rendezvous
