// The information that a launcher gives to a rank.

#include "bootstrap/environment.hpp"

#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/store.hpp"

namespace rondo::transport::bootstrap::environment_test {
namespace {

using namespace std::string_literals;
using testing::HasSubstr;

// Sets variables for one test, and removes them again.
class EnvironmentTest : public testing::Test {
 protected:
  void SetUp() override { clear(); }
  void TearDown() override { clear(); }

  static void set(const std::string& name, const std::string& value) {
    ::setenv(name.c_str(), value.c_str(), 1);
  }

  static void set_job(const std::string& coordinator, const std::string& rank,
                      const std::string& size) {
    set("RONDO_COORDINATOR", coordinator);
    set("RONDO_RANK", rank);
    set("RONDO_SIZE", size);
  }

  static std::string error() {
    return stores::error_of([] { (void)read_environment(); });
  }

  static void clear() {
    for (const char* name :
         {"RONDO_COORDINATOR", "RONDO_RANK", "RONDO_SIZE", "RONDO_LISTENER", "RONDO_FABRIC",
          "RONDO_FAKE_NODES", "RONDO_INTERFACE", "RONDO_LATENCY_US", "RONDO_BANDWIDTH_GBS"}) {
      ::unsetenv(name);
    }
  }

  const std::string job_ = "0123456789abcdef0123456789abcdef";
  const std::string local_ = "local:0123456789abcdef0123456789abcdef";
};

TEST_F(EnvironmentTest, MeansOneRankWhenNothingIsSet) { EXPECT_FALSE(read_environment()); }

TEST_F(EnvironmentTest, TellsRankAndSize) {
  set_job(local_, "2", "5");

  const auto launch = read_environment();

  ASSERT_TRUE(launch);
  EXPECT_EQ(launch->job, local_.substr(6));
  EXPECT_EQ(launch->rank, 2);
  EXPECT_EQ(launch->size, 5);
}

TEST_F(EnvironmentTest, WantsAllThreeOrNone) {
  set("RONDO_RANK", "0");

  EXPECT_THAT(error(), HasSubstr("must be set together"));
}

TEST_F(EnvironmentTest, RefusesWhatIsNoRank) {
  const std::vector<std::pair<std::string, std::string>> cases{
      {"x", "2"}, {"-1", "2"}, {"0", "0"}, {"2", "2"}, {"1", "2x"}, {"1 ", "2"}};
  for (const auto& [rank, size] : cases) {
    set_job(local_, rank, size);
    EXPECT_THAT(error(), HasSubstr("RONDO_")) << rank << " of " << size;
  }
}

TEST_F(EnvironmentTest, RefusesACoordinatorThatItDoesNotKnow) {
  for (const std::string& coordinator :
       {"tcp://1.2.3.4:5"s, "local:"s, "local:xyz"s, "0123"s, "tcp:host:1"s, "tcp:host/" + job_,
        "tcp::1/" + job_, "tcp:host:0/" + job_, "tcp:host:65536/" + job_, "tcp:host:1x/" + job_,
        "tcp:fe80::1:5/" + job_, "tcp:[host]:5/" + job_, "tcp:[]:5/" + job_, "tcp:ho st:5/" + job_,
        "tcp:host:1/" + job_ + "0", "tcp:host:1/" + job_.substr(1)}) {
    set_job(coordinator, "0", "1");
    EXPECT_THAT(error(), HasSubstr("local:JOB")) << coordinator;
  }
}

TEST_F(EnvironmentTest, TellsWhereTheStoreIs) {
  const std::vector<std::pair<std::string, Endpoint>> cases{
      {"node7.cluster:4711", {.host = "node7.cluster", .port = 4711}},
      {"10.0.0.1:1", {.host = "10.0.0.1", .port = 1}},
      {"[fe80::1]:65535", {.host = "fe80::1", .port = 65535}},
      {"10.0.0.1,10.1.0.1:7", {.host = "10.0.0.1,10.1.0.1", .port = 7}},
      {"[10.0.0.1,fd00::1]:7", {.host = "10.0.0.1,fd00::1", .port = 7}}};
  for (const auto& [text, endpoint] : cases) {
    set_job("tcp:" + text + "/" + job_, "1", "2");

    const auto launch = read_environment();

    ASSERT_TRUE(launch);
    EXPECT_EQ(launch->job, job_);
    EXPECT_EQ(launch->coordinator, endpoint);
    EXPECT_EQ(to_string(*launch->coordinator), text);
  }
}

TEST_F(EnvironmentTest, TellsNoStoreOfALocalJob) {
  set_job(local_, "0", "1");

  EXPECT_EQ(read_environment()->coordinator, std::nullopt);
}

TEST_F(EnvironmentTest, TellsTheOptions) {
  set_job(local_, "0", "4");
  set("RONDO_LISTENER", "7");
  set("RONDO_FABRIC", "ofi:tcp");
  set("RONDO_FAKE_NODES", "2");
  set("RONDO_INTERFACE", "ib0,^docker0");
  set("RONDO_LATENCY_US", "12.5");
  set("RONDO_BANDWIDTH_GBS", "1e1");

  const auto launch = read_environment();

  ASSERT_TRUE(launch);
  EXPECT_EQ(launch->listener, 7);
  EXPECT_EQ(launch->fabric, "ofi:tcp");
  EXPECT_EQ(launch->fake_nodes, 2);
  EXPECT_EQ(launch->interface, "ib0,^docker0");
  EXPECT_EQ(launch->latency_us, 12.5);
  EXPECT_EQ(launch->bandwidth_gbs, 10.0);
}

TEST_F(EnvironmentTest, RefusesOptionsThatMakeNoSense) {
  const std::vector<std::pair<std::string, std::string>> options{
      {"RONDO_LISTENER", "-1"},      {"RONDO_LISTENER", "x"},       {"RONDO_FAKE_NODES", "0"},
      {"RONDO_FAKE_NODES", "3"},     {"RONDO_LATENCY_US", "-1"},    {"RONDO_LATENCY_US", "nan"},
      {"RONDO_BANDWIDTH_GBS", "1x"}, {"RONDO_BANDWIDTH_GBS", "inf"}};
  for (const auto& [name, value] : options) {
    set_job(local_, "0", "2");
    set(name, value);
    EXPECT_THAT(error(), HasSubstr(name + "=")) << value;
    ::unsetenv(name.c_str());
  }
}

}  // namespace
}  // namespace rondo::transport::bootstrap::environment_test
