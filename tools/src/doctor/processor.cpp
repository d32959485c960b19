// Checks of the processor: what it can compute, which CPUs this process may use, for how much of
// the time, and at which frequency they run.
//
// The kernel tells what the processor can do; the library that selects kernels tells which ones the
// program uses. Where the two differ, somebody has said so in the environment.

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <set>
#include <sstream>

#include <rondo/tensor/data_type.hpp>
#include <rondo/tensor/engine.hpp>

#include "doctor/finding.hpp"
#include "doctor/kernel_files.hpp"
#include "failure.hpp"
#include "table.hpp"

namespace rondo::tools {
namespace {

namespace fs = std::filesystem;

// The kernel's names of what matters here, and ours.
constexpr std::array<std::pair<const char*, const char*>, 5> instruction_sets = {
    {{"avx2", "AVX2"},
     {"avx512f", "AVX-512"},
     {"avx512_bf16", "AVX512_BF16"},
     {"amx_tile", "AMX"},
     {"amx_bf16", "AMX_BF16"}}};

std::set<std::string> flags_below(const fs::path& root) {
  std::istringstream words(line_of(root, "proc/cpuinfo", "flags").value_or(""));
  std::set<std::string> flags;
  for (std::string word; words >> word;) flags.insert(word);
  return flags;
}

// "AVX2, AVX-512"
std::string names_of_sets(const std::set<std::string>& flags) {
  std::vector<std::string> names;
  for (const auto& [flag, name] : instruction_sets) {
    if (flags.contains(flag)) names.emplace_back(name);
  }
  return names.empty() ? "none of AVX2, AVX-512 and AMX"
                       : fmt::format("{}", fmt::join(names, ", "));
}

// Judges what the instruction sets come to, and what to do about it.
void judge_processor(const std::set<std::string>& flags, const std::string& kernels,
                     Finding& finding) {
  const bool narrowed = flags.contains("avx512f") && !kernels.starts_with("avx512");
  if (!flags.contains("avx2")) {
    finding.level = Level::warning;
    finding.means = "Kernels for AVX2 and AVX-512 compute several times as fast as those for SSE.";
    finding.advice =
        "Train on a processor with AVX2 or AVX-512; in a virtual machine, let it have "
        "the processor of its host.";
  } else if (narrowed) {
    finding.level = Level::note;
    finding.means = "The processor has AVX-512, and the kernels do not use it.";
    finding.advice = "Unset ONEDNN_MAX_CPU_ISA and DNNL_MAX_CPU_ISA.";
  } else {
    finding.means = flags.contains("avx512_bf16") || flags.contains("amx_bf16")
                        ? "train.precision = \"bf16\" is possible."
                        : "train.precision = \"bf16\" is not possible.";
  }
}

// The CPUs that this process may use, among those of the machine.
std::string cpu_set_text(const Subject& subject, std::size_t threads) {
  const auto allowed = line_of(subject.root, "proc/self/status", "Cpus_allowed_list");
  const auto online = first_line(subject.root, "sys/devices/system/cpu/online");
  return fmt::format("{} core(s) with {} hardware thread(s) in {} NUMA domain(s): CPUs {} of {}",
                     subject.machine.cores.size(), threads, subject.machine.numa_domains,
                     allowed.value_or("unknown"), online.value_or("unknown"));
}

// `rondo run` would refuse these ranks and threads: its own words. Else empty.
std::string refusal_of(const Subject& subject) {
  try {
    static_cast<void>(place(subject.machine, subject.request));
    return {};
  } catch (const UsageError& error) {
    return error.what();
  }
}

std::string ranks_text(const Subject& subject) {
  return counted(subject.ranks, "rank") + " x " + counted(subject.threads, "thread");
}

// The governors of the CPUs that may be used, each once.
std::set<std::string> governors_of(const Subject& subject) {
  std::set<std::string> governors;
  for (const int cpu : cpus_of(subject.machine.cores)) {
    const auto governor = first_line(
        subject.root, fmt::format("sys/devices/system/cpu/cpu{}/cpufreq/scaling_governor", cpu));
    if (governor) governors.insert(*governor);
  }
  return governors;
}

}  // namespace

void choose_placement(Subject& subject) {
  PlacementRequest anything = subject.request;
  anything.oversubscribe = true;
  const Placement placement = place(subject.machine, anything);
  subject.ranks = placement.ranks();
  subject.threads = placement.threads;
}

Finding check_processor(const Subject& subject) {
  const std::set<std::string> flags = flags_below(subject.root);
  const std::string kernels = tensor::instruction_set();
  const bool is_virtual = flags.contains("hypervisor");
  const std::string model =
      line_of(subject.root, "proc/cpuinfo", "model name").value_or(subject.machine.processor);
  Finding finding{.check = "processor"};
  finding.found =
      fmt::format("{}{}: {}; own kernels: {}", model, is_virtual ? " (virtual machine)" : "",
                  names_of_sets(flags), kernels);
  finding.source = "/proc/cpuinfo, and what the libraries select";
  finding.values = {{"model", model},
                    {"virtual_machine", is_virtual},
                    {"own_kernels", kernels},
                    {"bf16", tensor::computes_bf16()}};
  for (const auto& [flag, name] : instruction_sets) {
    finding.values[flag] = flags.contains(flag);
  }
  judge_processor(flags, kernels, finding);
  return finding;
}

Finding check_cpus(const Subject& subject) {
  const std::size_t threads = cpus_of(subject.machine.cores).size();
  const std::string refusal = refusal_of(subject);
  Finding finding{.check = "cpus"};
  finding.found = fmt::format("{}, for {}", cpu_set_text(subject, threads), ranks_text(subject));
  finding.source = "hwloc; Cpus_allowed_list in /proc/self/status; /sys/devices/system/cpu/online";
  finding.values = {{"cores", subject.machine.cores.size()},
                    {"hardware_threads", threads},
                    {"numa_domains", subject.machine.numa_domains},
                    {"ranks", subject.ranks},
                    {"threads", subject.threads}};
  if (!refusal.empty()) {
    finding.level = Level::problem;
    finding.means = "These ranks do not start: " + refusal + ".";
  } else if (static_cast<std::size_t>(subject.all_threads()) > subject.machine.cores.size()) {
    finding.level = Level::warning;
    finding.means = "Ranks share cores, are not bound, and wait for each other.";
  } else {
    finding.means = "Each thread has a core of its own.";
    return finding;
  }
  finding.advice = fmt::format(
      "Start at most {} threads here in all, or ask for more CPUs (affinity, cpuset, the job's "
      "request).",
      subject.machine.cores.size());
  return finding;
}

Finding check_cpu_quota(const Subject& subject) {
  Finding finding{.check = "cpu_quota"};
  const auto quota = transport::cpu_quota(subject.root);
  finding.source = quota ? quota->source : "cpu.max and cpu.cfs_quota_us below /sys/fs/cgroup";
  finding.values = {{"cpus", fact_if(quota.has_value(), quota ? quota->cpus : 0.0)}};
  if (!quota) {
    finding.found = "no control group limits the processor time";
    return finding;
  }
  finding.found = fmt::format("a control group grants the time of {:.2f} CPUs, for {}", quota->cpus,
                              ranks_text(subject));
  if (static_cast<double>(subject.all_threads()) <= quota->cpus) {
    finding.means = "That is enough.";
    return finding;
  }
  finding.level = Level::warning;
  finding.means =
      "When it is used up, the kernel stops all threads until the next period (usually "
      "100 ms), while their peers wait.";
  finding.advice =
      fmt::format("Start at most {} thread(s) in all, or raise the limit of the container or job.",
                  std::max(1, static_cast<int>(quota->cpus)));
  return finding;
}

Finding check_frequency(const Subject& subject) {
  const std::set<std::string> governors = governors_of(subject);
  const std::string text = fmt::format("{}", fmt::join(governors, ", "));
  const std::string driver =
      first_line(subject.root, "sys/devices/system/cpu/cpu0/cpufreq/scaling_driver").value_or("");
  // These drivers let the processor decide, and their "powersave" is not the slowest frequency.
  const bool decides = driver == "intel_pstate" || driver.starts_with("amd-pstate-epp") ||
                       driver == "amd_pstate_epp";
  Finding finding{.check = "frequency"};
  finding.source = "/sys/devices/system/cpu/cpu*/cpufreq";
  finding.values = {{"governors", text}, {"driver", driver}};
  if (governors.empty()) {
    finding.found = "no governor can be read, as in most virtual machines";
    return finding;
  }
  finding.found =
      fmt::format("governor {} of driver {}", text, driver.empty() ? "unknown" : driver);
  const bool slow = std::ranges::any_of(governors, [&](const std::string& governor) {
    return governor == "conservative" || (governor == "powersave" && !decides);
  });
  if (slow || governors.size() > 1) {
    finding.level = Level::warning;
    finding.means = "CPUs run below their frequency, and ranks wait for the slowest one.";
    finding.advice =
        "Let the administrator choose the governor performance: cpupower "
        "frequency-set -g performance.";
  }
  return finding;
}

}  // namespace rondo::tools
