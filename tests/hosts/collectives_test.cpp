// Everything that ranks on several hosts can do together gives exact results.

#include <string>
#include <tuple>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "hosts/job.hpp"

namespace rondo::test {
namespace {

/// The host of each rank, and a name for that.
struct Layout {
  const char* name;
  std::vector<int> hosts;
};

// Parameters: fabric, layout.
class HostsCollectivesTest : public HostsTest,
                             public testing::WithParamInterface<std::tuple<std::string, Layout>> {
 protected:
  [[nodiscard]] static const std::string& fabric() { return std::get<0>(GetParam()); }
  [[nodiscard]] static const std::vector<int>& layout() { return std::get<1>(GetParam()).hosts; }
};

TEST_P(HostsCollectivesTest, GiveExactResults) {
  Job job(layout());
  job.set("RONDO_FABRIC", fabric());
  job.start({rank_program(), "collectives"});
  for (int rank = 0; rank < job.size(); ++rank) {
    const Ended ended = job.wait(rank);
    EXPECT_EQ(ended.status, 0) << ended.out << ended.err;
    EXPECT_THAT(ended.out, testing::HasSubstr(" 0 wrong"));
  }
}

// Every operation that `rondo bench` measures checks every element, and ends with 1 when one is
// wrong.
class HostsBenchTest : public HostsTest, public testing::WithParamInterface<const char*> {};

TEST_P(HostsBenchTest, FindsNothingWrong) {
  Job job({1, 2});
  job.start({rondo_path(), "bench", GetParam(), "--sizes", "4:256K", "--iterations", "5"});
  for (int rank = 0; rank < job.size(); ++rank) {
    const Ended ended = job.wait(rank);
    EXPECT_EQ(ended.status, 0) << ended.out << ended.err;
  }
}

INSTANTIATE_TEST_SUITE_P(All, HostsBenchTest,
                         testing::Values("allreduce", "reduce_scatter", "allgather", "broadcast",
                                         "reduce", "alltoall", "latency", "bandwidth"),
                         [](const auto& parameter) { return std::string(parameter.param); });

std::string name_of(const testing::TestParamInfo<HostsCollectivesTest::ParamType>& info) {
  std::string name = std::get<0>(info.param) + std::get<1>(info.param).name;
  std::erase(name, ':');
  return name;
}

INSTANTIATE_TEST_SUITE_P(All, HostsCollectivesTest,
                         testing::Combine(testing::Values("tcp", "ucx:tcp", "ofi:tcp"),
                                          testing::Values(Layout{"OneRankEach", {1, 2}},
                                                          Layout{"ThreeHosts", {1, 2, 3}},
                                                          Layout{"TwoRanksEach", {1, 1, 2, 2}},
                                                          Layout{"Unequal", {1, 2, 2, 2, 3}},
                                                          Layout{"Interleaved", {1, 2, 1, 2}})),
                         name_of);

}  // namespace
}  // namespace rondo::test
