// When a rank is killed or a cable is pulled, everybody else says soon who it was.

#include <regex>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "hosts/job.hpp"

namespace rondo::test {
namespace {

/// A rank's report of the failure that ended it.
struct Report {
  double at = 0;  ///< see now()
  int rank = -2;
  std::string host = {};
};

Report report_of(const std::string& output) {
  std::smatch found;
  const std::regex line("failed at=([0-9.]+) rank=(-?[0-9]+) host=(\\S*):");
  if (!std::regex_search(output, found, line)) return {};
  return {std::stod(found[1]), std::stoi(found[2]), found[3]};
}

class HostsFailureTest : public HostsTest {
 protected:
  // The times that the names of the tests promise hold on an idle machine.
  static constexpr double ten_times_as_long = 10.0;
  static constexpr double three_times_as_long = 15.0;

  /// Starts ranks that reduce until something fails; returns when all of them do. Their data goes
  /// over the wire that is cut, whichever is faster.
  static void start(Job& job, const std::string& interface = "eth0") {
    job.set("RONDO_INTERFACE", interface);
    job.start({rank_program(), "until-failure"});
    for (int rank = 0; rank < job.size(); ++rank) {
      ASSERT_THAT(job.output_until(rank, "ready\n"), testing::HasSubstr("ready\n"));
    }
  }

  /// `rank` ends by itself within `seconds` of `began`, and names `lost` on `host`.
  static void expect_report(Job& job, int rank, int lost, const std::string& host, double began,
                            double seconds) {
    const Ended ended = job.wait(rank);
    const Report report = report_of(ended.out);
    EXPECT_EQ(report.rank, lost) << "rank " << rank << ": " << ended.out << ended.err;
    EXPECT_EQ(report.host, host) << "rank " << rank << ": " << ended.out << ended.err;
    EXPECT_LE(report.at - began, seconds) << "rank " << rank << ": " << ended.out << ended.err;
  }
};

TEST_F(HostsFailureTest, AKilledRankIsNamedWithinASecond) {
  Job job({1, 2, 2, 3});
  start(job);
  const double began = now();
  job.kill(2);
  for (const int rank : {0, 1, 3}) expect_report(job, rank, 2, "h2", began, ten_times_as_long);
}

TEST_F(HostsFailureTest, TheKilledRankOfTheStoreIsNamedWithinASecond) {
  Job job({1, 2, 3});
  start(job);
  const double began = now();
  job.kill(0);
  for (const int rank : {1, 2}) expect_report(job, rank, 0, "h1", began, ten_times_as_long);
}

TEST_F(HostsFailureTest, ACutLinkIsNamedOnBothSidesWithinFiveSeconds) {
  Job job({1, 2});
  start(job);
  const double began = now();
  hosts({"cut", "2"});
  expect_report(job, 0, 1, "h2", began, three_times_as_long);
  expect_report(job, 1, 0, "h1", began, three_times_as_long);
  hosts({"mend", "2"});
}

// The store is reached over eth0 and notices nothing.
TEST_F(HostsFailureTest, ACutOfTheDataAloneIsNoticedOnBothSides) {
  Job job({1, 2});
  start(job, "eth1");
  const double began = now();
  hosts({"cut", "2", "eth1"});
  expect_report(job, 0, 1, "h2", began, 10.0);
  expect_report(job, 1, 0, "h1", began, 10.0);
  hosts({"mend", "2", "eth1"});
}

TEST_F(HostsFailureTest, AnInterfaceThatGoesDownIsNamedOnBothSidesWithinFiveSeconds) {
  Job job({1, 2});
  start(job);
  const double began = now();
  hosts({"down", "2"});
  expect_report(job, 0, 1, "h2", began, three_times_as_long);
  expect_report(job, 1, 0, "h1", began, three_times_as_long);
  hosts({"up", "2"});
}

}  // namespace
}  // namespace rondo::test
