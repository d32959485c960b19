// The findings of `rondo doctor` from measurements and from made-up files of the kernel.

#include <filesystem>
#include <fstream>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "doctor/finding.hpp"
#include "doctor/kernel_files.hpp"
#include "doctor/links.hpp"
#include "doctor/report.hpp"
#include "support/scratch_folder.hpp"
#include "support/sources.hpp"

namespace rondo::tools::doctor_findings_test {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

constexpr std::uint64_t gibibyte = std::uint64_t{1} << 30U;

// A made-up machine with `cores` of one hardware thread each.
class DoctorFindingsTest : public testing::Test {
 protected:
  explicit DoctorFindingsTest(int cores = 4) {
    subject_.root = folder_.path();
    subject_.machine.memory_bytes = 64 * gibibyte;
    for (int cpu = 0; cpu < cores; ++cpu) subject_.machine.cores.push_back({0, {cpu}});
    choose(1, 1);
  }

  void write(const std::string& name, const std::string& text) const {
    const auto path = folder_.path() / name;
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path) << text;
  }

  void write_limits(const std::string& files, const std::string& locked) const {
    write("proc/self/limits",
          "Limit                     Soft Limit           Hard Limit           Units\n"
          "Max open files            " +
              files +
              "                files\n"
              "Max locked memory         " +
              locked + "              bytes\n");
  }

  void choose(int ranks, int threads) {
    subject_.request = {.ranks = ranks, .threads = threads};
    choose_placement(subject_);
  }

  test::ScratchFolder folder_;
  Subject subject_;
};

// The value of a finding, for programs.
template <class T>
std::optional<T> value_in(const Finding& finding, const std::string& name) {
  for (const auto& [key, fact] : finding.values) {
    if (key == name && std::holds_alternative<T>(fact)) return std::get<T>(fact);
  }
  return std::nullopt;
}

TEST_F(DoctorFindingsTest, ReadsTheInstructionSets) {
  write("proc/cpuinfo",
        "processor\t: 0\nmodel name\t: Some CPU 9000\nflags\t\t: fpu avx2 hypervisor\n");
  const Finding finding = check_processor(subject_);
  EXPECT_EQ(finding.level, Level::ok);
  EXPECT_THAT(finding.found, HasSubstr("Some CPU 9000 (virtual machine): AVX2;"));
  EXPECT_EQ(value_in<bool>(finding, "avx2"), true);
  EXPECT_EQ(value_in<bool>(finding, "amx_bf16"), false);
}

TEST_F(DoctorFindingsTest, WarnsOfAProcessorWithoutAvx2) {
  write("proc/cpuinfo", "model name\t: Old CPU\nflags\t\t: fpu sse2\n");
  const Finding finding = check_processor(subject_);
  EXPECT_EQ(finding.level, Level::warning);
  EXPECT_THAT(finding.found, HasSubstr("none of AVX2, AVX-512 and AMX"));
}

TEST_F(DoctorFindingsTest, ComparesTheCpuSetWithRanksAndThreads) {
  write("proc/self/status", "Name:\trondo\nCpus_allowed:\tf\nCpus_allowed_list:\t0-3\n");
  write("sys/devices/system/cpu/online", "0-7\n");
  choose(2, 2);
  const Finding fits = check_cpus(subject_);
  choose(5, 1);
  const Finding shares = check_cpus(subject_);
  choose(3, 2);
  const Finding refused = check_cpus(subject_);

  EXPECT_EQ(fits.level, Level::ok);
  EXPECT_THAT(fits.found,
              AllOf(HasSubstr("CPUs 0-3 of 0-7"), HasSubstr("for 2 ranks x 2 threads")));
  EXPECT_EQ(shares.level, Level::warning);
  EXPECT_EQ(refused.level, Level::problem);
  EXPECT_THAT(refused.means, HasSubstr("3 ranks x 2 threads need 6 cores"));
}

TEST_F(DoctorFindingsTest, FindsAQuotaOfVersionTwoInAGroupAround) {
  write("proc/self/cgroup", "0::/job/step\n");
  write("sys/fs/cgroup/cpu.max", "max 100000\n");
  write("sys/fs/cgroup/job/cpu.max", "150000 100000\n");
  write("sys/fs/cgroup/job/step/cpu.max", "max 100000\n");
  choose(2, 1);
  const Finding finding = check_cpu_quota(subject_);
  EXPECT_EQ(finding.level, Level::warning);
  EXPECT_EQ(value_in<double>(finding, "cpus"), 1.5);
  EXPECT_EQ(finding.source, "/sys/fs/cgroup/job/cpu.max");
  EXPECT_THAT(finding.advice, HasSubstr("at most 1 thread(s)"));
}

TEST_F(DoctorFindingsTest, FindsAQuotaOfVersionOne) {
  write("proc/self/cgroup", "3:memory:/\n2:cpu,cpuacct:/docker/1234\n0::/\n");
  write("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "250000\n");
  write("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "100000\n");
  choose(2, 1);
  const Finding finding = check_cpu_quota(subject_);
  EXPECT_EQ(finding.level, Level::ok);
  EXPECT_EQ(value_in<double>(finding, "cpus"), 2.5);
}

TEST_F(DoctorFindingsTest, FindsNoQuotaWhereThereIsNone) {
  write("proc/self/cgroup", "2:cpu:/\n");
  write("sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1\n");
  write("sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n");
  const Finding finding = check_cpu_quota(subject_);
  EXPECT_EQ(finding.level, Level::ok);
  EXPECT_EQ(value_in<double>(finding, "cpus"), std::nullopt);
}

TEST_F(DoctorFindingsTest, WarnsOfASlowGovernorButNotOfOneThatDecidesItself) {
  const std::string folder = "sys/devices/system/cpu/cpu0/cpufreq/";
  EXPECT_EQ(check_frequency(subject_).level, Level::ok);
  write(folder + "scaling_governor", "powersave\n");
  write(folder + "scaling_driver", "acpi-cpufreq\n");
  EXPECT_EQ(check_frequency(subject_).level, Level::warning);
  write(folder + "scaling_driver", "intel_pstate\n");
  EXPECT_EQ(check_frequency(subject_).level, Level::ok);
}

TEST_F(DoctorFindingsTest, ComparesOpenFilesWithTheRanks) {
  choose(100, 1);
  write_limits("1024                 524288", "unlimited            unlimited");
  EXPECT_EQ(check_open_files(subject_).level, Level::ok);
  write_limits("64                   64", "unlimited            unlimited");
  const Finding problem = check_open_files(subject_);
  EXPECT_EQ(problem.level, Level::problem);
  EXPECT_EQ(value_in<std::int64_t>(problem, "needed"), 3 * 100 + 64 + 24);  // as it connects
  EXPECT_EQ(value_in<std::int64_t>(problem, "hard"), 64);
  choose(4, 1);
  write_limits("128                  128", "unlimited            unlimited");
  EXPECT_EQ(check_open_files(subject_).level, Level::warning);
}

TEST_F(DoctorFindingsTest, WantsAddressesForAllMemoryOfEachRank) {
  const std::string head =
      "Limit                     Soft Limit           Hard Limit           Units\n"
      "Max address space         ";
  choose(2, 1);
  EXPECT_EQ(check_address_space(subject_).level, Level::ok);
  write("proc/self/limits", head + "unlimited            unlimited            bytes\n");
  EXPECT_EQ(check_address_space(subject_).level, Level::ok);
  write("proc/self/limits", head + "146028888064         unlimited            bytes\n");
  EXPECT_EQ(check_address_space(subject_).level, Level::ok);
  write("proc/self/limits", head + "146028888063         unlimited            bytes\n");
  const Finding finding = check_address_space(subject_);
  EXPECT_EQ(finding.level, Level::problem);
  EXPECT_EQ(value_in<std::int64_t>(finding, "needed_bytes"), 146028888064);
  EXPECT_THAT(finding.advice, HasSubstr("ulimit -v"));
}

TEST_F(DoctorFindingsTest, WantsAddressesOf2TiBForTheMemoryOfManyRanks) {
  choose(1024, 1);
  const Finding finding = check_address_space(subject_);
  const auto gibibyte = std::int64_t{1} << 30U;
  EXPECT_EQ(value_in<std::int64_t>(finding, "needed_bytes"), (2048 + 1024 + 4) * gibibyte);
}

TEST_F(DoctorFindingsTest, WantsLockedMemoryForInfiniBandAlone) {
  write_limits("1024                 1024", "65536                65536");
  EXPECT_EQ(check_locked_memory(subject_).level, Level::ok);
  std::filesystem::create_directories(folder_.path() / "sys/class/infiniband/mlx5_0");
  const Finding finding = check_locked_memory(subject_);
  EXPECT_EQ(finding.level, Level::problem);
  EXPECT_EQ(value_in<std::int64_t>(finding, "soft_bytes"), 65536);
  EXPECT_THAT(finding.found, HasSubstr("64 KiB may be locked"));
  write_limits("1024                 1024", "unlimited            unlimited");
  EXPECT_EQ(check_locked_memory(subject_).level, Level::ok);
}

TEST_F(DoctorFindingsTest, TellsWhatPtraceScopeIsNotNeededFor) {
  EXPECT_EQ(check_ptrace(subject_).level, Level::ok);
  write("proc/sys/kernel/yama/ptrace_scope", "1\n");
  const Finding finding = check_ptrace(subject_);
  EXPECT_EQ(finding.level, Level::note);
  EXPECT_EQ(value_in<std::int64_t>(finding, "ptrace_scope"), 1);
}

TEST_F(DoctorFindingsTest, TakesTheLesserOfMachineAndGroupForFreeMemory) {
  write("proc/meminfo", "MemTotal:       67108864 kB\nMemAvailable:   33554432 kB\n");
  EXPECT_EQ(value_in<double>(check_memory(subject_), "free_bytes"), 32.0 * gibibyte);
  write("proc/self/cgroup", "0::/\n");
  write("sys/fs/cgroup/memory.max", "1073741824\n");
  write("sys/fs/cgroup/memory.current", "536870912\n");
  choose(4, 1);
  const Finding finding = check_memory(subject_);
  EXPECT_EQ(finding.level, Level::warning);
  EXPECT_EQ(value_in<double>(finding, "free_bytes"), 0.5 * gibibyte);
  EXPECT_EQ(finding.source, "/sys/fs/cgroup/memory.max");
  // What was read from files, and is not read now, is given up.
  write("sys/fs/cgroup/memory.stat", "anon 5\ninactive_file 268435456\n");
  EXPECT_EQ(value_in<double>(check_memory(subject_), "free_bytes"), 0.75 * gibibyte);
  write("sys/fs/cgroup/memory.stat", "anon 5\n");
  write("sys/fs/cgroup/memory.current", "1073741824\n");
  EXPECT_EQ(check_memory(subject_).level, Level::warning);
}

TEST_F(DoctorFindingsTest, KnowsThatVersionOneWritesNoLimitAsAHugeNumber) {
  write("proc/self/cgroup", "4:memory:/\n");
  write("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
  EXPECT_FALSE(free_group_memory(subject_.root).has_value());
}

TEST_F(DoctorFindingsTest, NotesASmallShm) {
  write("proc/self/mounts", "proc /proc proc rw 0 0\nshm /dev/shm tmpfs rw,size=65536k 0 0\n");
  const Finding finding = check_shared_memory(subject_);
  EXPECT_EQ(finding.level, Level::note);
  EXPECT_EQ(value_in<std::int64_t>(finding, "dev_shm_bytes"), 64 << 20);
  write("proc/self/mounts", "tmpfs /dev/shm tmpfs rw,nosuid 0 0\n");
  EXPECT_EQ(check_shared_memory(subject_).level, Level::ok);
}

TEST_F(DoctorFindingsTest, ReadsHugePages) {
  write("sys/kernel/mm/transparent_hugepage/shmem_enabled", "always within_size advise [never]\n");
  write("sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages", "512\n");
  write("sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages", "100\n");
  const Finding finding = check_huge_pages(subject_);
  EXPECT_EQ(finding.level, Level::note);
  EXPECT_THAT(finding.found, HasSubstr("never; 100 of 512 pages of 2 MiB free"));
  write("sys/kernel/mm/transparent_hugepage/shmem_enabled", "always [within_size] advise never\n");
  EXPECT_EQ(check_huge_pages(subject_).level, Level::ok);
}

TEST_F(DoctorFindingsTest, RefusesAnOldKernel) {
  write("proc/sys/kernel/osrelease", "6.1.0-18-amd64\n");
  EXPECT_EQ(check_kernel_release(subject_).level, Level::ok);
  write("proc/sys/kernel/osrelease", "4.18.0-372.el8\n");
  EXPECT_EQ(check_kernel_release(subject_).level, Level::problem);
}

TEST_F(DoctorFindingsTest, FindsHintsOfAContainer) {
  EXPECT_EQ(check_container(subject_).level, Level::ok);
  write("proc/1/environ", std::string("HOME=/root\0container=podman\0", 28));
  EXPECT_THAT(check_container(subject_).found, HasSubstr("container=podman"));
  write("proc/self/cgroup", "0::/kubepods/pod1\n");
  EXPECT_THAT(check_container(subject_).found, HasSubstr("kubepods"));
  write(".dockerenv", "");
  EXPECT_EQ(check_container(subject_).level, Level::note);
  EXPECT_THAT(check_container(subject_).found, HasSubstr("/.dockerenv"));
}

TEST_F(DoctorFindingsTest, ListsInterfacesWithTheirSpeeds) {
  EXPECT_EQ(check_network(subject_).level, Level::note);
  write("sys/class/net/lo/operstate", "unknown\n");
  write("sys/class/net/docker0/operstate", "up\n");
  write("sys/class/net/eth0/operstate", "up\n");
  write("sys/class/net/eth0/speed", "25000\n");
  write("sys/class/net/eth1/operstate", "down\n");
  write("sys/class/infiniband/mlx5_0/ports/1/state", "4: ACTIVE\n");
  write("sys/class/infiniband/mlx5_0/ports/1/rate", "100 Gb/sec (4X EDR)\n");
  const Finding finding = check_network(subject_);
  EXPECT_EQ(finding.found, "eth0 (25 Gbit/s), mlx5_0:1 (RDMA, 100 Gbit/s)");
  EXPECT_EQ(hardware_speed("ucx: tcp over eth0, as asked", "", {finding}), 25e9 / 8);
  EXPECT_EQ(hardware_speed("ucx: rc over mlx5_0:1", "", {finding}), 100e9 / 8);
  EXPECT_EQ(hardware_speed("ucx: tcp over eth7", "", {finding}), 0.0);
  EXPECT_EQ(hardware_speed("ucx: tcp over eth0", "another", {finding}), 0.0);
}

// Measurements.

constexpr KernelRun good = {.cpu = 0,
                            .calls_per_second = 100,
                            .share_of_cpu = 0.99,
                            .gflops_per_second = 50,
                            .milliseconds_a_call = 10};
constexpr KernelRun half = {.cpu = 1,
                            .calls_per_second = 50,
                            .share_of_cpu = 0.5,
                            .gflops_per_second = 25,
                            .milliseconds_a_call = 20};

TEST_F(DoctorFindingsTest, NoticesACpuThatIsSharedWithOthers) {
  EXPECT_EQ(judge_kernel(good, 0).level, Level::ok);
  EXPECT_EQ(judge_kernel(half, 0).level, Level::warning);
  EXPECT_THAT(judge_kernel(half, 0.02).means,
              AllOf(HasSubstr("CPU 1 is shared"), Not(HasSubstr("hypervisor"))));
  EXPECT_THAT(judge_kernel(half, 0.4).means, HasSubstr("The hypervisor took 40 %"));
  choose(2, 1);
  EXPECT_EQ(judge_kernels(subject_, good, {good, good}, 0).level, Level::ok);
  const Finding finding = judge_kernels(subject_, good, {good, half}, 0);
  EXPECT_EQ(finding.level, Level::warning);
  EXPECT_THAT(finding.means, AllOf(HasSubstr("CPU 1 (50 %)"), Not(HasSubstr("CPU 0"))));
  EXPECT_EQ(value_in<double>(finding, "efficiency"), 0.75);
}

TEST_F(DoctorFindingsTest, ReadsWhatTheHypervisorTook) {
  write("proc/stat", "cpu  100 20 30 800 5 1 4 40 7 0\ncpu0 1 2 3 4 5 6 7 8 9 0\nintr 5\n");
  const TicksOfCpus ticks = ticks_of_cpus(subject_.root);
  EXPECT_EQ(ticks.size(), 2U);
  EXPECT_EQ(ticks.at(-1).all, 1000);
  EXPECT_EQ(ticks.at(-1).stolen, 40);
  EXPECT_EQ(ticks.at(0).all, 36);
  EXPECT_EQ(ticks.at(0).stolen, 8);
  EXPECT_TRUE(ticks_of_cpus(subject_.root / "nowhere").empty());
}

// Half of the time of CPU 3, which is an eighth of that of all four.
TEST_F(DoctorFindingsTest, SeesTimeThatWasStolenFromOneCpu) {
  const auto stat = [&](int user, int stolen) {
    std::string text = fmt::format("cpu  {} 0 0 0 0 0 0 {}\n", 4 * user - stolen, stolen);
    for (int cpu = 0; cpu < 4; ++cpu) {
      const int lost = cpu == 3 ? stolen : 0;
      text += fmt::format("cpu{} {} 0 0 0 0 0 0 {}\n", cpu, user - lost, lost);
    }
    write("proc/stat", text);
    return ticks_of_cpus(subject_.root);
  };
  const TicksOfCpus begin = stat(1000, 0);
  const TicksOfCpus end = stat(1100, 50);
  const auto stolen = [&](const std::vector<KernelRun>& runs) {
    return stolen_between(begin, end, runs);
  };

  EXPECT_EQ(stolen({{.cpu = 3, .share_of_cpu = 0.5}}), 0.5);
  EXPECT_EQ(stolen({{.cpu = 2, .share_of_cpu = 0.5}}), 0.0);
  EXPECT_EQ(stolen({{.cpu = 0, .share_of_cpu = 1.0},
                    {.cpu = 1, .share_of_cpu = 1.0},
                    {.cpu = 3, .share_of_cpu = 0.5}}),
            0.5);
  // Threads that were not bound may have run anywhere.
  EXPECT_EQ(stolen({{.cpu = -1, .share_of_cpu = 0.5}}), 0.125);
}

TEST_F(DoctorFindingsTest, NoticesOversubscription) {
  choose(8, 1);
  const Finding finding = judge_kernels(subject_, good, std::vector<KernelRun>(8, half), 0);
  EXPECT_EQ(finding.level, Level::warning);
  EXPECT_THAT(finding.means, HasSubstr("8 threads share 4 CPUs"));
}

TEST_F(DoctorFindingsTest, NotesThreadsThatSlowEachOtherDown) {
  choose(4, 1);
  KernelRun slow = half;
  slow.share_of_cpu = 1.0;
  EXPECT_EQ(judge_kernels(subject_, good, std::vector<KernelRun>(4, slow), 0).level, Level::note);
}

TEST(DoctorLinksTest, AreComparedWithTheirInterface) {
  const PairTimes pair = {.from = "a",
                          .to = "b",
                          .latency_us = 20,
                          .bytes_per_second = 1e9,
                          .clock_error_seconds = 1e-5};
  EXPECT_EQ(judge_pair("ucx: tcp over eth0", pair, 1.25e9).level, Level::ok);
  EXPECT_THAT(judge_pair("ucx: tcp over eth0", pair, 1.25e9).found, HasSubstr("80 % of"));
  EXPECT_EQ(judge_pair("ucx: tcp over eth0", pair, 12.5e9).level, Level::warning);
  const Finding unknown = judge_pair("ucx: tcp over eth0", pair, 0);
  EXPECT_EQ(unknown.level, Level::ok);
  EXPECT_EQ(value_in<double>(unknown, "hardware_bytes_per_second"), std::nullopt);
  PairTimes slow = pair;
  slow.latency_us = 5000;
  EXPECT_EQ(judge_pair("ucx: tcp over eth0", slow, 0).level, Level::warning);
}

TEST(DoctorLinksTest, ReportTheLargestDifferenceOfClocks) {
  const PairTimes close = {.from = "a", .to = "b", .clock_seconds = 1e-4};
  const PairTimes behind = {.from = "a", .to = "c", .clock_seconds = -0.5};
  const PairTimes far = {.from = "b", .to = "c", .clock_seconds = 3};
  EXPECT_EQ(judge_clocks({close}).level, Level::ok);
  EXPECT_EQ(judge_clocks({close, behind}).level, Level::note);
  EXPECT_THAT(judge_clocks({close, behind}).found, HasSubstr("c is 0.500000 s behind that of a"));
  EXPECT_EQ(judge_clocks({far, behind}).level, Level::warning);
}

TEST_F(DoctorFindingsTest, KnowsThatNoJobRunsOnlyOfLinksThatWereAllMeasured) {
  std::vector<Finding> findings = {{.check = "link_between"}, {.check = "link_between"}};
  judge_broken_links(findings, true);
  EXPECT_EQ(findings[1].level, Level::problem);
  EXPECT_THAT(findings[1].means, HasSubstr("No job can run"));
  judge_broken_links(findings, false);
  EXPECT_EQ(findings[1].level, Level::warning);
  EXPECT_THAT(findings[1].means, HasSubstr("not measured to the end"));
}

// Reports.

TEST_F(DoctorFindingsTest, HasASectionOfTheDocumentsForEachCheck) {
  const std::set<std::string> known = {
      "reach",         "versions",   "processor",        "cpus",           "cpu_quota",
      "frequency",     "memory",     "shared_memory",    "huge_pages",     "address_space",
      "locked_memory", "open_files", "ptrace_scope",     "kernel_release", "container",
      "network",       "kernel",     "kernels_together", "link_shm",       "link_ofi",
      "link_tcp",      "link_ucx",   "link_between",     "clocks"};
  for (const Finding& finding : read_findings(subject_)) {
    EXPECT_TRUE(known.contains(finding.check)) << finding.check;
  }
  std::ifstream page(test::sources() / "docs/troubleshooting.md");
  std::set<std::string> anchors;
  for (std::string line; std::getline(page, line);) {
    if (!line.starts_with("## ") && !line.starts_with("### ")) continue;
    std::string anchor = line.substr(line.find(' ') + 1);
    for (char& c : anchor) c = c == ' ' ? '-' : static_cast<char>(std::tolower(c));
    anchors.insert("docs/troubleshooting.md#" + anchor);
  }
  for (const std::string& check : known) {
    EXPECT_TRUE(anchors.contains(section_of(check))) << section_of(check);
  }
}

TEST_F(DoctorFindingsTest, ReadsItsOwnJson) {
  DoctorReport report{.version = "1.2.3", .hosts = {"a"}, .findings = {{.check = "memory"}}};
  report.findings[0].level = Level::note;
  report.findings[0].values = {
      {"a", true}, {"b", std::int64_t{7}}, {"c", 0.5}, {"d", std::string("text")}, {"e", Fact()}};
  const auto copy = parse_report(as_json(report));
  ASSERT_TRUE(copy.has_value());
  EXPECT_EQ(copy->version, "1.2.3");
  EXPECT_EQ(copy->findings[0].level, Level::note);
  EXPECT_EQ(copy->findings[0].values, report.findings[0].values);
  EXPECT_FALSE(parse_report("rondo: an error").has_value());
  EXPECT_FALSE(parse_report("{\"rondo\": \"0.1\"}").has_value());
}

// The whole report was lost.
TEST_F(DoctorFindingsTest, ReplacesWhatIsNotUtf8) {
  DoctorReport report{.version = "1.2.3", .hosts = {"a"}, .findings = {{.check = "memory"}}};
  report.findings[0].found = "caf\xe9";
  const auto copy = parse_report(as_json(report));
  ASSERT_TRUE(copy.has_value());
  EXPECT_EQ(copy->findings[0].found, "caf\xef\xbf\xbd");
}

TEST_F(DoctorFindingsTest, ExplainsWhatIsNotInOrder) {
  const Finding fine = {.check = "memory", .found = "enough", .source = "a file"};
  Finding bad = fine;
  bad.level = Level::warning;
  bad.advice = "Buy more.";
  EXPECT_EQ(as_text(fine, false), "ok       memory: enough\n");
  EXPECT_THAT(as_text(fine, true), HasSubstr("a file"));
  EXPECT_THAT(as_text(bad, false), AllOf(HasSubstr("advice  Buy more.\n"),
                                         HasSubstr("see     docs/troubleshooting.md#memory\n")));
}

// Commands.

TEST(DoctorCaptureTest, CatchesWhatCommandsLeave) {
  const auto results = capture({{"sh", "-c",
                                 "echo out; echo 'rondo: rank 0: pid 3' >&2; "
                                 "echo 'rondo: it is late' >&2; exit 3"},
                                {"no-such-program-of-rondo"},
                                {"sh", "-c", "cat"}},
                               std::chrono::seconds(30));
  EXPECT_EQ(results[0].status, 3);
  EXPECT_EQ(results[0].out, "out\n");
  EXPECT_EQ(results[0].cause(), "it is late");
  EXPECT_EQ(results[0].cause_behind_agent(), "it is late");
  EXPECT_EQ(results[1].status, 127);
  EXPECT_THAT(results[1].cause(), HasSubstr("cannot execute 'no-such-program-of-rondo'"));
  // Its input is closed.
  EXPECT_FALSE(results[2].failed());
}

TEST(DoctorCaptureTest, TakesNeitherPlacementNorEndsOfRanksForTheCause) {
  const auto results = capture({{"sh", "-c",
                                 "echo 'rondo: 2 ranks share 1 cores: not bound' >&2; "
                                 "echo 'rondo: no such device' >&2; "
                                 "echo 'rondo: rank 1 (pid 4) ended with status 3' >&2; exit 3"}},
                               std::chrono::seconds(30));
  EXPECT_EQ(results[0].cause(), "no such device");
}

TEST(DoctorCaptureTest, TakesNoBannerOfAnAgentForTheCause) {
  const auto results =
      capture({{"sh", "-c",
                "echo Authorized use only >&2; echo 'rondo: rank 0: pid 3' >&2; "
                "echo 'rondo: no such device' >&2; "
                "echo 'rondo: rank 0 (pid 3) ended with status 4' >&2; exit 4"},
               {"sh", "-c", "echo Authorized use only >&2; echo no route >&2; false"}},
              std::chrono::seconds(30));
  EXPECT_EQ(results[0].cause_behind_agent(), "no such device");
  EXPECT_EQ(results[1].cause_behind_agent(), "no route");
}

// All of the output was taken for the report, so that no link seemed to work.
TEST(DoctorCaptureTest, FindsTheReportBehindWhatALoginScriptWrites) {
  const std::string report = R"({"pairs":[{"from":0,"to":1}],"route":"tcp: sockets over eth0"})";
  for (const char* before : {"", "Welcome {you}\n{}\n7\n", "Welcome: ", "{\"pair\": {"}) {
    EXPECT_EQ(Captured{.out = before + report + "\n"}.report(), report) << before;
  }
  EXPECT_EQ(Captured{.out = "Welcome {you}\n{}\n"}.report(), "");
}

TEST(DoctorCaptureTest, EndsWhatDoesNotEnd) {
  const auto results = capture({{"sh", "-c", "exec sleep 600"}}, std::chrono::seconds(0));
  EXPECT_FALSE(results[0].in_time);
  EXPECT_TRUE(results[0].failed());
}

}  // namespace
}  // namespace rondo::tools::doctor_findings_test
