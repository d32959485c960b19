// The findings of `rondo doctor` from measurements and from made-up files of the kernel.

#include <filesystem>
#include <fstream>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "doctor/finding.hpp"
#include "doctor/links.hpp"
#include "doctor/report.hpp"
#include "support/scratch_folder.hpp"
#include "support/sources.hpp"

namespace rondo::tools::doctor_findings_test {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

constexpr std::int64_t gibibyte = std::int64_t{1} << 30U;

// Made-up files of the kernel: name and text.
using Files = std::vector<std::pair<std::string, std::string>>;

// A made-up machine with four cores of one hardware thread each.
class DoctorFindingsTest : public testing::Test {
 protected:
  DoctorFindingsTest() {
    subject_.root = folder_.path();
    subject_.machine.memory_bytes = 64 * gibibyte;
    for (int cpu = 0; cpu < 4; ++cpu) subject_.machine.cores.push_back({0, {cpu}});
    choose(1, 1);
  }

  void write(const Files& files) const {
    for (const auto& [name, text] : files) {
      const auto path = folder_.path() / name;
      std::filesystem::create_directories(path.parent_path());
      std::ofstream(path) << text;
    }
  }

  void choose(int ranks, int threads) {
    subject_.request = {.ranks = ranks, .threads = threads};
    choose_placement(subject_);
  }

  test::ScratchFolder folder_;
  Subject subject_;
};

// A check for so many ranks, on a machine with these files alone.
struct Check {
  Finding (*check)(const Subject& subject);
  std::pair<int, int> ranks;  // and threads of each
  Files files;
  Level level;
  Facts values = Facts::object();  // some of them
  std::string said = {};           // in what people read
};

Files limit(const std::string& line) {
  return {{"proc/self/limits",
           "Limit                     Soft Limit           Hard Limit           Units\n" + line}};
}

Files operator+(Files files, const Files& more) {
  files.insert(files.end(), more.begin(), more.end());
  return files;
}

const Files cpus_of_four = {
    {"proc/self/status", "Name:\trondo\nCpus_allowed:\tf\nCpus_allowed_list:\t0-3\n"},
    {"sys/devices/system/cpu/online", "0-7\n"}};
const Files powersave = {{"sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", "powersave\n"}};
const std::string driver = "sys/devices/system/cpu/cpu0/cpufreq/scaling_driver";
const std::string addresses = "Max address space         ";
const Files little_locked =
    limit("Max locked memory         65536                65536    bytes\n");
const Files infiniband = {{"sys/class/infiniband/mlx5_0/ports/1/state", "4: ACTIVE\n"},
                          {"sys/class/infiniband/mlx5_0/ports/1/rate", "100 Gb/sec (4X EDR)\n"}};
const Files half_of_32_gibibytes = {
    {"proc/meminfo", "MemTotal:       67108864 kB\nMemAvailable:   33554432 kB\n"}};
const Files a_gibibyte_in_the_group = {{"proc/self/cgroup", "0::/\n"},
                                       {"sys/fs/cgroup/memory.max", "1073741824\n"},
                                       {"sys/fs/cgroup/memory.current", "536870912\n"}};
const std::string shmem = "sys/kernel/mm/transparent_hugepage/shmem_enabled";
const Files interfaces = {{"sys/class/net/lo/operstate", "unknown\n"},
                          {"sys/class/net/docker0/operstate", "up\n"},
                          {"sys/class/net/eth0/operstate", "up\n"},
                          {"sys/class/net/eth0/speed", "25000\n"},
                          {"sys/class/net/eth1/operstate", "down\n"}};

const std::vector<Check> checks = {
    {check_processor,
     {1, 1},
     {{"proc/cpuinfo",
       "processor\t: 0\nmodel name\t: Some CPU 9000\nflags\t\t: fpu avx2 hypervisor\n"}},
     Level::ok,
     {{"avx2", true}, {"amx_bf16", false}},
     "Some CPU 9000 (virtual machine): AVX2;"},
    {check_processor,
     {1, 1},
     {{"proc/cpuinfo", "model name\t: Old CPU\nflags\t\t: fpu sse2\n"}},
     Level::warning,
     {{"avx2", false}},
     "none of AVX2, AVX-512 and AMX"},

    {check_cpus, {2, 2}, cpus_of_four, Level::ok, {{"cores", 4}}, "CPUs 0-3 of 0-7, for 2 ranks x"},
    {check_cpus, {5, 1}, cpus_of_four, Level::warning},
    {check_cpus, {3, 2}, {}, Level::problem, {{"ranks", 3}}, "3 ranks x 2 threads need 6 cores"},

    // Version two, in a group around; version one; none.
    {check_cpu_quota,
     {2, 1},
     {{"proc/self/cgroup", "0::/job/step\n"},
      {"sys/fs/cgroup/cpu.max", "max 100000\n"},
      {"sys/fs/cgroup/job/cpu.max", "150000 100000\n"},
      {"sys/fs/cgroup/job/step/cpu.max", "max 100000\n"}},
     Level::warning,
     {{"cpus", 1.5}},
     "/sys/fs/cgroup/job/cpu.max"},
    {check_cpu_quota,
     {2, 1},
     {{"proc/self/cgroup", "3:memory:/\n2:cpu,cpuacct:/docker/1234\n0::/\n"},
      {"sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "250000\n"},
      {"sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "100000\n"}},
     Level::ok,
     {{"cpus", 2.5}}},
    {check_cpu_quota,
     {1, 1},
     {{"proc/self/cgroup", "2:cpu:/\n"},
      {"sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1\n"},
      {"sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n"}},
     Level::ok,
     {{"cpus", nullptr}}},

    // Some drivers let the processor decide.
    {check_frequency, {1, 1}, {}, Level::ok},
    {check_frequency, {1, 1}, powersave + Files{{driver, "acpi-cpufreq\n"}}, Level::warning},
    {check_frequency, {1, 1}, powersave + Files{{driver, "intel_pstate\n"}}, Level::ok},

    {check_open_files,
     {100, 1},
     limit("Max open files            1024                 524288               files\n"),
     Level::ok},
    {check_open_files,
     {100, 1},
     limit("Max open files            64                   64                   files\n"),
     Level::problem,
     {{"needed", 3 * 100 + 64 + 24}, {"hard", 64}}},  // as it connects
    {check_open_files,
     {4, 1},
     limit("Max open files            128                  128                  files\n"),
     Level::warning},

    // For all memory of each rank; 2 TiB for that of many.
    {check_address_space, {2, 1}, {}, Level::ok},
    {check_address_space, {2, 1}, limit(addresses + "unlimited  unlimited  bytes\n"), Level::ok},
    {check_address_space, {2, 1}, limit(addresses + "146028888064  unlimited\n"), Level::ok},
    {check_address_space,
     {2, 1},
     limit(addresses + "146028888063         unlimited            bytes\n"),
     Level::problem,
     {{"needed_bytes", 146028888064}},
     "ulimit -v"},
    {check_address_space,
     {1024, 1},
     {},
     Level::ok,
     {{"needed_bytes", (2048 + 1024 + 4) * gibibyte}}},

    // Only InfiniBand needs it.
    {check_locked_memory, {1, 1}, little_locked, Level::ok},
    {check_locked_memory,
     {1, 1},
     little_locked + infiniband,
     Level::problem,
     {{"soft_bytes", 65536}},
     "64 KiB may be locked"},
    {check_locked_memory,
     {1, 1},
     limit("Max locked memory         unlimited            unlimited            bytes\n") +
         infiniband,
     Level::ok},

    // The lesser of machine and group. Files that were read, and are not read now, are given up.
    {check_memory, {1, 1}, half_of_32_gibibytes, Level::ok, {{"free_bytes", 32.0 * gibibyte}}},
    {check_memory,
     {4, 1},
     half_of_32_gibibytes + a_gibibyte_in_the_group,
     Level::warning,
     {{"free_bytes", 0.5 * gibibyte}},
     "/sys/fs/cgroup/memory.max"},
    {check_memory,
     {4, 1},
     half_of_32_gibibytes + a_gibibyte_in_the_group +
         Files{{"sys/fs/cgroup/memory.stat", "anon 5\ninactive_file 268435456\n"}},
     Level::warning,
     {{"free_bytes", 0.75 * gibibyte}}},
    {check_memory,
     {4, 1},
     a_gibibyte_in_the_group + Files{{"sys/fs/cgroup/memory.current", "1073741824\n"},
                                     {"sys/fs/cgroup/memory.stat", "anon 5\n"}},
     Level::warning,
     {{"free_bytes", 0.0}}},
    // Version one writes no limit as a huge number.
    {check_memory,
     {1, 1},
     {{"proc/self/cgroup", "4:memory:/\n"},
      {"sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n"}},
     Level::ok,
     {{"limited_by_control_group", false}}},

    {check_huge_pages,
     {1, 1},
     {{shmem, "always within_size advise [never]\n"},
      {"sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages", "512\n"},
      {"sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages", "100\n"}},
     Level::note,
     {{"pool_2048k_total", 512}},
     "never; 100 of 512 pages of 2 MiB free"},
    {check_huge_pages, {1, 1}, {{shmem, "always [within_size] advise never\n"}}, Level::ok},

    {check_kernel_release, {1, 1}, {{"proc/sys/kernel/osrelease", "6.1.0-18-amd64\n"}}, Level::ok},
    {check_kernel_release,
     {1, 1},
     {{"proc/sys/kernel/osrelease", "4.18.0-372.el8\n"}},
     Level::problem},

    {check_network, {1, 1}, {}, Level::note},
    {check_network,
     {1, 1},
     interfaces + infiniband,
     Level::ok,
     {{"megabits_eth0", 25000}},
     "eth0 (25 Gbit/s), mlx5_0:1 (RDMA, 100 Gbit/s)\n"}};

TEST_F(DoctorFindingsTest, FollowFromTheFilesOfTheKernel) {
  for (const Check& row : checks) {
    for (const auto& entry : std::filesystem::directory_iterator(folder_.path())) {
      std::filesystem::remove_all(entry.path());
    }
    write(row.files);
    choose(row.ranks.first, row.ranks.second);
    const Finding finding = row.check(subject_);
    const std::string text = fmt::format("{}: {}\n{}\n{}\n{}", finding.check, finding.found,
                                         finding.source, finding.means, finding.advice);
    EXPECT_EQ(finding.level, row.level) << text;
    EXPECT_THAT(text, HasSubstr(row.said));
    for (const auto& [name, value] : row.values.items()) {
      EXPECT_EQ(finding.values.at(name), value) << text << name;
    }
  }
}

TEST_F(DoctorFindingsTest, FindsTheSpeedOfAnInterface) {
  write(interfaces + infiniband);
  const Finding finding = check_network(subject_);
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
  EXPECT_EQ(finding.values.at("efficiency"), 0.75);
}

TEST_F(DoctorFindingsTest, ReadsWhatTheHypervisorTook) {
  write({{"proc/stat", "cpu  100 20 30 800 5 1 4 40 7 0\ncpu0 1 2 3 4 5 6 7 8 9 0\nintr 5\n"}});
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
    write({{"proc/stat", text}});
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
  EXPECT_TRUE(unknown.values.at("hardware_bytes_per_second").is_null());
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
      "reach",          "processor",  "cpus",          "cpu_quota",        "frequency",
      "memory",         "huge_pages", "address_space", "locked_memory",    "open_files",
      "kernel_release", "network",    "kernel",        "kernels_together", "link_shm",
      "link_ofi",       "link_tcp",   "link_ucx",      "link_between",     "clocks"};
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
  report.findings[0].values = {{"a", true}, {"b", 7}, {"c", 0.5}, {"d", "text"}, {"e", nullptr}};
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
  EXPECT_EQ(results[1].status, 127);
  EXPECT_THAT(results[1].cause(), HasSubstr("cannot execute 'no-such-program-of-rondo'"));
  // Its input is closed.
  EXPECT_FALSE(results[2].failed());
}

// Neither placement, nor the ends of ranks, nor the banner of an agent.
TEST(DoctorCaptureTest, FindsTheCauseAmongWhatElseIsSaid) {
  const Captured local{.status = 3,
                       .err =
                           "rondo: 2 ranks share 1 cores: not bound\nrondo: no such device\n"
                           "rondo: rank 1 (pid 4) ended with status 3\n"};
  const Captured behind{.status = 4,
                        .err =
                            "Authorized use only\nrondo: rank 0: pid 3\n"
                            "rondo: no such device\nrondo: rank 0 (pid 3) ended with status 4\n"};
  EXPECT_EQ(local.cause(), "no such device");
  EXPECT_EQ(behind.cause(), "no such device");
  EXPECT_EQ((Captured{.status = 1, .err = "Authorized use only\nno route\n"}.cause()), "no route");
  EXPECT_EQ((Captured{.status = 1}.cause()), "it ended with status 1");
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
