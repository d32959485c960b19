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

  /// Harms host 2, over whose `interface` two ranks exchange data: each names the other.
  static void expect_both_named(const std::string& interface, const std::vector<std::string>& harm,
                                const std::vector<std::string>& mend, double seconds) {
    Job job({1, 2});
    start(job, interface);
    const double began = now();
    hosts(harm);
    expect_report(job, 0, 1, "h2", began, seconds);
    expect_report(job, 1, 0, "h1", began, seconds);
    hosts(mend);
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
  expect_both_named("eth0", {"cut", "2"}, {"mend", "2"}, three_times_as_long);
}

// The store is reached over eth0 and notices nothing.
TEST_F(HostsFailureTest, ACutOfTheDataAloneIsNoticedOnBothSides) {
  expect_both_named("eth1", {"cut", "2", "eth1"}, {"mend", "2", "eth1"}, 10.0);
}

TEST_F(HostsFailureTest, AnInterfaceThatGoesDownIsNamedOnBothSidesWithinFiveSeconds) {
  expect_both_named("eth0", {"down", "2"}, {"up", "2"}, three_times_as_long);
}

}  // namespace
}  // namespace rondo::test
