// Times one convolution of oneDNN: on one thread, then on as many threads at once as the job would
// have, each with kernels and memory of its own, and each on a CPU of its own where there are
// enough.
//
// Speed alone says little, because nobody knows what this processor should reach. So each thread
// also counts the processor time that it got. A thread that computes all the time gets all the time
// of its CPU, unless other processes, a quota or a hypervisor take a part of it: a share below one
// tells of them, whatever the processor. The kernel counts what the hypervisor took; the rest was
// others' or the quota's.

#include <fmt/format.h>
#include <time.h>

#include <algorithm>
#include <barrier>
#include <chrono>
#include <cstddef>
#include <exception>
#include <fstream>
#include <set>
#include <sstream>
#include <string_view>
#include <thread>

#include <rondo/tensor/convolution.hpp>
#include <rondo/tensor/engine.hpp>
#include <rondo/tensor/tensor.hpp>

#include "doctor/finding.hpp"
#include "doctor/kernel_files.hpp"

namespace rondo::tools {
namespace {

using Clock = std::chrono::steady_clock;

// Long enough for several periods of a quota and of the scheduler.
constexpr std::chrono::milliseconds duration{500};

// Below this share of its CPU a thread was not alone there.
constexpr double least_share = 0.9;

// With a CPU of their own, threads compute about as fast together as alone, but for frequency and
// memory.
constexpr double least_efficiency = 0.6;

// More threads than this for each CPU show nothing new.
constexpr int most_threads_a_cpu = 4;

// A layer of the middle of ResNet: 3x3, 64 channels, 28x28.
const tensor::ConvolutionSpec layer = {.input = {4, 28, 28, 64},
                                       .filters = 64,
                                       .kernel_h = 3,
                                       .kernel_w = 3,
                                       .pad_top = 1,
                                       .pad_bottom = 1,
                                       .pad_left = 1,
                                       .pad_right = 1,
                                       .input_gradient = tensor::InputGradient::unused,
                                       .weight_gradient = tensor::WeightGradient::unused};

// Multiplications and additions of a call.
double operations() {
  return 2.0 * static_cast<double>(layer.output().size() * layer.kernel_h * layer.kernel_w *
                                   layer.input.c);
}

double cpu_seconds() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

// The layer with its memory; made by the thread that runs it.
class Kernel {
 public:
  Kernel() {
    const std::vector<float> weights(static_cast<std::size_t>(layer.weights()), 0.01F);
    std::ranges::fill(x_.span(), 0.5F);
    convolution_.pack_weights(weights);
    run();
  }
  void run() { convolution_.forward(x_.view(), {}, y_.view()); }

 private:
  tensor::Engine engine_{1};
  tensor::Convolution convolution_{engine_, layer};
  tensor::Tensor x_{layer.input};
  tensor::Tensor y_{layer.output()};
};

// Calls the kernel until the time is over.
KernelRun run_for(Kernel& kernel, int cpu) {
  KernelRun result{.cpu = cpu};
  const double cpu_begin = cpu_seconds();
  const auto begin = Clock::now();
  int calls = 0;
  for (; Clock::now() - begin < duration; ++calls) kernel.run();
  const double seconds = std::chrono::duration<double>(Clock::now() - begin).count();
  result.share_of_cpu = (cpu_seconds() - cpu_begin) / seconds;
  result.calls_per_second = calls / seconds;
  result.gflops_per_second = result.calls_per_second * operations() / 1e9;
  result.milliseconds_a_call = 1e3 / result.calls_per_second;
  return result;
}

double percent(double share) { return std::min(100.0, 100.0 * share); }

// Less stolen time than this explains nothing.
constexpr double much_stolen = 0.05;

// Tells who had the rest of the time.
std::string who_else(double stolen) {
  if (stolen < much_stolen) return "Other processes or a control group's quota took the rest.";
  return fmt::format(
      "The hypervisor took {:.0f} % of the CPUs' time; other processes or a quota may have taken "
      "more.",
      percent(stolen));
}

const char* const how_to_be_alone =
    "Look with top for other processes, and end them or choose other CPUs; ask the scheduler for "
    "whole nodes.";

bool is_crowded(const KernelRun& run) { return run.share_of_cpu < least_share; }

// user, nice, system, idle, iowait, irq, softirq, steal; what follows is part of user.
CpuTicks ticks_in(std::istream& words) {
  constexpr int fields = 8;
  CpuTicks ticks;
  double number = 0.0;
  for (int i = 0; i < fields && words >> number; ++i) {
    ticks.all += number;
    if (i == fields - 1) ticks.stolen = number;
  }
  return ticks;
}

// The CPUs on which threads got too little time: "CPU 3 (52 %)".
std::string crowded_cpus(const std::vector<KernelRun>& runs) {
  std::vector<std::string> names;
  for (const KernelRun& run : runs) {
    if (is_crowded(run) && run.cpu >= 0) {
      names.push_back(fmt::format("CPU {} ({:.0f} %)", run.cpu, percent(run.share_of_cpu)));
    }
  }
  constexpr std::size_t most = 8;
  const std::size_t more = names.size() > most ? names.size() - most : 0;
  names.resize(names.size() - more);
  return fmt::format("{}{}", fmt::join(names, ", "),
                     more > 0 ? fmt::format(" and {} more", more) : "");
}

}  // namespace

std::vector<KernelRun> run_kernels(const Subject& subject, int threads) {
  // One CPU of each core first; the other hardware threads only when cores do not suffice.
  std::vector<int> cpus;
  for (const Core& core : subject.machine.cores) cpus.push_back(core.cpus.front());
  const auto wanted = static_cast<std::size_t>(threads);
  if (wanted > cpus.size()) {
    for (const Core& core : subject.machine.cores) {
      cpus.insert(cpus.end(), core.cpus.begin() + 1, core.cpus.end());
    }
  }
  const bool bound = wanted <= cpus.size();
  std::vector<KernelRun> runs(wanted);
  std::barrier ready(threads);
  std::vector<std::exception_ptr> errors(wanted);
  const auto run = [&](std::size_t index) {
    try {
      const int cpu = bound ? cpus[index] : -1;
      if (bound) transport::bind_to({cpu});
      Kernel kernel;
      ready.arrive_and_wait();
      runs[index] = run_for(kernel, cpu);
    } catch (...) {
      errors[index] = std::current_exception();
      ready.arrive_and_drop();
    }
  };
  std::vector<std::jthread> pool;
  try {
    while (pool.size() < wanted) pool.emplace_back(run, pool.size());
  } catch (...) {  // as where a limit allows no more threads: the others must not wait for them
    for (std::size_t missing = pool.size(); missing < wanted; ++missing) ready.arrive_and_drop();
    throw;
  }
  pool.clear();  // waits for all
  for (const std::exception_ptr& error : errors) {
    if (error) std::rethrow_exception(error);
  }
  return runs;
}

// "cpu  1 2 ..." is of all CPUs, "cpu0 1 2 ..." of one.
TicksOfCpus ticks_of_cpus(const std::filesystem::path& root) {
  constexpr std::size_t prefix = std::string_view("cpu").size();
  TicksOfCpus ticks;
  std::ifstream file(root / "proc/stat");
  for (std::string line; std::getline(file, line) && line.starts_with("cpu");) {
    std::istringstream words(line.substr(prefix));
    int cpu = -1;
    const bool of_all = line.substr(prefix).starts_with(' ');
    if (of_all || words >> cpu) ticks[cpu] = ticks_in(words);
  }
  return ticks;
}

// One CPU's loss would be lost among many that lost nothing.
double stolen_between(const TicksOfCpus& begin, const TicksOfCpus& end,
                      std::span<const KernelRun> runs) {
  const bool any = std::ranges::any_of(runs, is_crowded);
  std::set<int> cpus;
  for (const KernelRun& run : runs) {
    if (!any || is_crowded(run)) cpus.insert(run.cpu);
  }
  CpuTicks passed;
  for (const int cpu : cpus) {
    const auto before = begin.find(cpu);
    const auto after = end.find(cpu);
    if (before == begin.end() || after == end.end()) continue;
    passed.all += after->second.all - before->second.all;
    passed.stolen += after->second.stolen - before->second.stolen;
  }
  return passed.all > 0.0 ? passed.stolen / passed.all : 0.0;
}

Finding judge_kernel(const KernelRun& alone, double stolen) {
  Finding finding{.check = "kernel"};
  finding.found = fmt::format(
      "one thread: {:.2f} ms for a convolution, {:.0f} GFLOP/s, with {:.0f} % of its CPU",
      alone.milliseconds_a_call, alone.gflops_per_second, percent(alone.share_of_cpu));
  finding.source = "measured: 3x3, 64 channels, 4 images of 28x28, forward, by oneDNN";
  finding.values = {{"milliseconds", alone.milliseconds_a_call},
                    {"gflops_per_second", alone.gflops_per_second},
                    {"share_of_cpu", alone.share_of_cpu},
                    {"stolen", stolen}};
  if (alone.share_of_cpu >= least_share) return finding;
  finding.level = Level::warning;
  finding.means = fmt::format("CPU {} is shared. {}", alone.cpu, who_else(stolen));
  finding.advice = how_to_be_alone;
  return finding;
}

Finding judge_kernels(const Subject& subject, const KernelRun& alone,
                      const std::vector<KernelRun>& together, double stolen) {
  const auto threads = static_cast<double>(together.size());
  const std::size_t cpus = cpus_of(subject.machine.cores).size();
  double calls = 0.0;
  for (const KernelRun& run : together) calls += run.calls_per_second;
  const double efficiency = calls / threads / alone.calls_per_second;
  const double share = std::ranges::min(together, {}, &KernelRun::share_of_cpu).share_of_cpu;
  Finding finding{.check = "kernels_together"};
  finding.found = fmt::format(
      "{} threads at once: each at {:.0f} % of the speed of one alone, with at least {:.0f} % of "
      "a "
      "CPU",
      together.size(), 100.0 * efficiency, percent(share));
  finding.source = "measured: the same on all threads at once";
  finding.values = {{"threads", together.size()},
                    {"efficiency", efficiency},
                    {"least_share_of_cpu", share},
                    {"stolen", stolen},
                    {"gflops_per_second", calls * operations() / 1e9}};
  if (together.size() > cpus) {
    finding.level = Level::warning;
    finding.means = fmt::format(
        "{} threads share {} CPUs: a step takes as long as its slowest rank, "
        "which has to wait for a CPU.",
        subject.all_threads(), cpus);
    finding.advice = "Start fewer ranks or threads (-n, --threads): at most one thread a core.";
  } else if (share < least_share) {
    finding.level = Level::warning;
    finding.means =
        fmt::format("CPUs are shared: {}. {}", crowded_cpus(together), who_else(stolen));
    finding.advice = how_to_be_alone;
  } else if (efficiency < least_efficiency) {
    finding.level = Level::note;
    finding.means =
        "Threads slow each other down although each has a CPU: hardware threads share a "
        "core, or the frequency falls when all compute.";
    finding.advice = "Compare images a second with half as many threads (rondo bench model).";
  }
  return finding;
}

std::vector<Finding> measure_kernels(const Subject& subject) {
  const int cpus = static_cast<int>(cpus_of(subject.machine.cores).size());
  const int threads = std::min(subject.all_threads(), most_threads_a_cpu * cpus);
  const TicksOfCpus begin = ticks_of_cpus(subject.root);
  const KernelRun alone = run_kernels(subject, 1).front();
  const TicksOfCpus middle = ticks_of_cpus(subject.root);
  std::vector<Finding> findings = {
      judge_kernel(alone, stolen_between(begin, middle, std::span(&alone, 1)))};
  // One thread was measured already.
  if (threads == 1) return findings;
  const std::vector<KernelRun> together = run_kernels(subject, threads);
  const double stolen = stolen_between(middle, ticks_of_cpus(subject.root), together);
  findings.push_back(judge_kernels(subject, alone, together, stolen));
  return findings;
}

}  // namespace rondo::tools
