#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "machine.hpp"

namespace rondo::tools {

/// How much a finding matters. Only a problem changes the exit status.
enum class Level {
  ok,
  note,     ///< worth knowing
  warning,  ///< slower than it could be
  problem,  ///< something does not work
};

/// The values of a finding for programs, or one of them; null: not known.
using Facts = nlohmann::ordered_json;

/// `value`, or null where it is not known.
template <class T>
[[nodiscard]] Facts fact_if(bool known, T value) {
  return known ? Facts(value) : Facts();
}

/// The result of one check of `rondo doctor`.
struct Finding {
  std::string check = {};  ///< its name, which is stable, and names its section of the documents
  Level level = Level::ok;
  std::string found = {};          ///< the value, for people
  std::string source = {};         ///< where it was read, or how it was measured
  std::string means = {};          ///< one or two sentences
  std::string advice = {};         ///< one sentence; empty: nothing needs to be done
  Facts values = Facts::object();  ///< under names that are stable
  std::string host = {};           ///< where it was found; empty: here
};

/// What is examined.
struct Subject {
  std::filesystem::path root = "/";  ///< below which the files of the kernel are read
  Machine machine = {};
  PlacementRequest request = {};  ///< what the user wants to start here

  // The ranks of `request`, as `rondo run` would start them; choose_placement() fills these in.
  int ranks = 1;
  int threads = 1;  ///< of each rank

  [[nodiscard]] int all_threads() const noexcept { return ranks * threads; }
};

/// Fills in ranks and threads, even where `rondo run` would refuse them.
void choose_placement(Subject& subject);

// The checks that only read. Each reads what it needs below `subject.root`.
[[nodiscard]] Finding check_processor(const Subject& subject);
[[nodiscard]] Finding check_cpus(const Subject& subject);
[[nodiscard]] Finding check_cpu_quota(const Subject& subject);
[[nodiscard]] Finding check_frequency(const Subject& subject);
[[nodiscard]] Finding check_kernel_release(const Subject& subject);
[[nodiscard]] Finding check_open_files(const Subject& subject);
[[nodiscard]] Finding check_address_space(const Subject& subject);
[[nodiscard]] Finding check_locked_memory(const Subject& subject);
[[nodiscard]] Finding check_memory(const Subject& subject);
[[nodiscard]] Finding check_huge_pages(const Subject& subject);
[[nodiscard]] Finding check_network(const Subject& subject);

/// All of the above, in the order of the report.
[[nodiscard]] std::vector<Finding> read_findings(const Subject& subject);

/// One thread that computed the same convolution again and again.
struct KernelRun {
  int cpu = -1;                    ///< to which it was bound; -1: none
  double calls_per_second = 0.0;   ///< by the clock
  double share_of_cpu = 0.0;       ///< processor time, divided by the time that has passed
  double gflops_per_second = 0.0;  ///< by the clock
  double milliseconds_a_call = 0.0;
};

/// The convolution on one thread, then on `threads` at once, for a fraction of a second each.
[[nodiscard]] std::vector<KernelRun> run_kernels(const Subject& subject, int threads);

/// Time of a CPU, in ticks, since the machine has started.
struct CpuTicks {
  double all = 0.0;
  double stolen = 0.0;  ///< in which the hypervisor ran something else
};
/// By CPU; of all CPUs together by -1, as KernelRun has it. Empty when it cannot be read.
using TicksOfCpus = std::map<int, CpuTicks>;
[[nodiscard]] TicksOfCpus ticks_of_cpus(const std::filesystem::path& root);

/// The share that the hypervisor took of the time of the CPUs on which `runs` got too little time;
/// of all their CPUs where none did.
[[nodiscard]] double stolen_between(const TicksOfCpus& begin, const TicksOfCpus& end,
                                    std::span<const KernelRun> runs);

// `stolen` is such a share.
[[nodiscard]] Finding judge_kernel(const KernelRun& alone, double stolen);
/// `together` are as many threads as were measured, at most those of the subject.
[[nodiscard]] Finding judge_kernels(const Subject& subject, const KernelRun& alone,
                                    const std::vector<KernelRun>& together, double stolen);

/// The checks that compute: the first of the above, and with several threads both.
[[nodiscard]] std::vector<Finding> measure_kernels(const Subject& subject);

}  // namespace rondo::tools
