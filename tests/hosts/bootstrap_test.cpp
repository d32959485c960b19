// Which ranks connect to each other, and by which interface.

#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "hosts/job.hpp"

namespace rondo::test {
namespace {

class HostsBootstrapTest : public HostsTest {
 protected:
  static void expect_success(Job& job, const std::string& said) {
    for (int rank = 0; rank < job.size(); ++rank) {
      const Ended ended = job.wait(rank);
      EXPECT_EQ(ended.status, 0) << ended.out << ended.err;
      EXPECT_THAT(ended.out, testing::HasSubstr(said));
    }
  }
};

// The other is slow, so that what is measured on a busy machine changes nothing.
TEST_F(HostsBootstrapTest, TakesTheInterfaceThatLeadsToTheCoordinator) {
  for (const char* host : {"1", "2"}) hosts({"slow", host, "eth0", "50"});
  Job job({1, 2}, 1);
  job.start({rank_program(), "collectives"});
  expect_success(job, "over eth1, auto: ");
  for (const char* host : {"1", "2"}) hosts({"slow", host, "eth0", "0"});
}

TEST_F(HostsBootstrapTest, TakesTheInterfaceThatIsNamed) {
  Job job({1, 2}, 0);
  job.set("RONDO_INTERFACE", "eth1");
  job.start({rank_program(), "collectives"});
  expect_success(job, "over eth1, auto: ");
}

TEST_F(HostsBootstrapTest, PassesOverAnInterfaceThatIsDown) {
  hosts({"down", "2", "eth0"});
  Job job({1, 2}, 1);
  job.set("RONDO_INTERFACE", "eth0,eth1");
  job.start({rank_program(), "collectives"});
  expect_success(job, "over eth1, auto: ");
  hosts({"up", "2", "eth0"});
}

// The kernel knows no speed of these interfaces, so it is measured.
TEST_F(HostsBootstrapTest, TakesTheFasterNetworkThoughTheStoreIsInTheSlowOne) {
  for (const char* host : {"1", "2"}) hosts({"slow", host, "eth0", "50"});
  Job job({1, 2, 2}, 0);
  job.start({rank_program(), "collectives"});
  expect_success(job, "over eth1, auto: measured ");
  for (const char* host : {"1", "2"}) hosts({"slow", host, "eth0", "0"});
}

// The line of eth0 works, but leads nowhere.
TEST_F(HostsBootstrapTest, LeavesANetworkThatCarriesNothingForTheNext) {
  hosts({"lose", "2", "eth0"});
  Job job({1, 2}, 1);
  job.set("RONDO_INTERFACE", "eth0,eth1");
  job.start({rank_program(), "collectives"});
  expect_success(job, "over eth1, auto: the first of those that were named; left out: ");
  hosts({"find", "2", "eth0"});
}

TEST_F(HostsBootstrapTest, SaysWhyNoNetworkJoinsTheHosts) {
  hosts({"lose", "2", "eth0"});
  Job job({1, 2}, 1);
  job.set("RONDO_INTERFACE", "eth0");
  job.start({rank_program(), "collectives"});
  for (int rank = 0; rank < job.size(); ++rank) {
    const Ended ended = job.wait(rank);
    EXPECT_EQ(ended.status, 3) << ended.out << ended.err;
    EXPECT_THAT(ended.out + ended.err, testing::HasSubstr("did not carry a message"));
  }
  hosts({"find", "2", "eth0"});
}

TEST_F(HostsBootstrapTest, KeepsAJobOfAnotherNameOut) {
  Job job({1, 2});
  Job stranger({1, 2});
  std::string other = job.coordinator();
  other.back() = other.back() == 'f' ? 'e' : 'f';
  stranger.set_coordinator(other);
  stranger.set("RONDO_TEST_PATIENCE", "3");

  stranger.start_rank(1, {rank_program(), "collectives"});
  job.start({rank_program(), "collectives"});

  expect_success(job, " 0 wrong");
  EXPECT_EQ(stranger.wait(1).status, 3);
}

}  // namespace
}  // namespace rondo::test
