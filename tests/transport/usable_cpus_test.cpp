// The CPUs and the quota of a process; control groups are files that are made up here.

#include <rondo/transport/usable_cpus.hpp>

#include <cstddef>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "bootstrap/environment.hpp"
#include "support/scratch_folder.hpp"

namespace rondo::transport::usable_cpus_test {
namespace {

using testing::ElementsAre;
using testing::Optional;

class CpuQuotaTest : public testing::Test {
 protected:
  void write(const std::string& name, const std::string& text) const {
    const auto path = folder_.path() / name;
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path) << text;
  }

  // A group of version 1, in `group` below the mount point.
  void write_first(const std::string& group, const std::string& quota) const {
    write("sys/fs/cgroup/cpu,cpuacct/" + group + "/cpu.cfs_quota_us", quota + "\n");
    write("sys/fs/cgroup/cpu,cpuacct/" + group + "/cpu.cfs_period_us", "100000\n");
  }

  [[nodiscard]] std::optional<double> cpus() const {
    const auto quota = cpu_quota(folder_.path());
    return quota ? std::optional(quota->cpus) : std::nullopt;
  }

  const rondo::test::ScratchFolder folder_;
};

TEST_F(CpuQuotaTest, IsTheLeastOfAllGroupsAroundInVersionTwo) {
  write("proc/self/cgroup", "0::/pod/job/step\n");
  write("sys/fs/cgroup/pod/cpu.max", "400000 100000\n");
  write("sys/fs/cgroup/pod/job/cpu.max", "150000 100000\n");
  write("sys/fs/cgroup/pod/job/step/cpu.max", "max 100000\n");
  EXPECT_THAT(cpus(), Optional(1.5));
  EXPECT_EQ(cpu_quota(folder_.path())->source, "/sys/fs/cgroup/pod/job/cpu.max");
}

TEST_F(CpuQuotaTest, IsTheLeastOfAllGroupsAroundInVersionOne) {
  write("proc/self/cgroup", "3:memory:/\n2:cpu,cpuacct:/pod/job\n0::/\n");
  write_first("pod", "200000");
  write_first("pod/job", "300000");
  write_first("", "-1");
  EXPECT_THAT(cpus(), Optional(2.0));
}

TEST_F(CpuQuotaTest, IsThatOfTheMountPointWhereTheGroupIsTheHosts) {
  write("proc/self/cgroup", "2:cpu,cpuacct:/docker/1234\n");
  write_first("", "50000");
  EXPECT_THAT(cpus(), Optional(0.5));
}

TEST_F(CpuQuotaTest, IsNoneWithoutALimit) {
  EXPECT_EQ(cpus(), std::nullopt);
  write("proc/self/cgroup", "0::/job\n");
  write("sys/fs/cgroup/job/cpu.max", "max 100000\n");
  EXPECT_EQ(cpus(), std::nullopt);
}

TEST_F(CpuQuotaTest, CountsForRanksThatWait) {
  const bootstrap::CpuMask four = {0xF};
  EXPECT_FALSE(bootstrap::outnumber_cpus({four, four}, folder_.path()));
  write("proc/self/cgroup", "2:cpu,cpuacct:/job\n");
  write_first("job", "150000");
  EXPECT_TRUE(bootstrap::outnumber_cpus({four, four}, folder_.path()));
}

TEST(UsableCpusTest, RoundsTheQuotaUpToAtLeastOneThread) {
  const auto threads = [](double quota) {
    return UsableCpus{.cpus = {0, 1, 2, 5}, .quota = CpuQuota{.cpus = quota}}.threads();
  };
  EXPECT_EQ(threads(0.01), 1);
  EXPECT_EQ(threads(1.5), 2);
  EXPECT_EQ(threads(3.0), 3);
  EXPECT_EQ(threads(64.0), 4);
  EXPECT_EQ(UsableCpus{.cpus = {4}}.threads(), 1);
}

TEST(UsableCpusTest, FollowsTheMaskOfTheThread) {
  const int last = thread_cpus().back();
  std::jthread([last] {
    bind_to({last});
    EXPECT_THAT(usable_cpus().cpus, ElementsAre(last));
  });
}

}  // namespace
}  // namespace rondo::transport::usable_cpus_test
