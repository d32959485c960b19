#include "bootstrap/environment.hpp"

#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <rondo/transport/error.hpp>

namespace rondo::transport::rendezvous::environment_test {
namespace {

using namespace std::string_literals;
using testing::HasSubstr;

// Sets variables for one test, and takes them away again.
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

  static std::string complaint() {
    try {
      (void)read_environment();
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Errc::rendezvous_failed);
      return error.what();
    }
    return "no complaint";
  }

  static void clear() {
    for (const char* name :
         {"RONDO_COORDINATOR", "RONDO_RANK", "RONDO_SIZE", "RONDO_LISTENER", "RONDO_FABRIC",
          "RONDO_FAKE_NODES", "RONDO_INTERFACE", "RONDO_LATENCY_US", "RONDO_BANDWIDTH_GBS",
          "OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS"}) {
      ::unsetenv(name);
    }
  }

  const std::string job_ = "0123456789abcdef0123456789abcdef";
  const std::string local_ = "local:0123456789abcdef0123456789abcdef";
};

TEST_F(EnvironmentTest, MeansOneRankWhenNothingIsSet) { EXPECT_FALSE(read_environment()); }

TEST_F(EnvironmentTest, TellsThePlace) {
  set_job(local_, "2", "5");

  const auto placement = read_environment();

  ASSERT_TRUE(placement);
  EXPECT_EQ(placement->job, local_.substr(6));
  EXPECT_EQ(placement->rank, 2);
  EXPECT_EQ(placement->size, 5);
}

TEST_F(EnvironmentTest, WantsAllThreeOrNone) {
  set("RONDO_RANK", "0");

  EXPECT_THAT(complaint(), HasSubstr("must be set together"));
}

TEST_F(EnvironmentTest, RefusesWhatIsNoPlace) {
  const std::vector<std::pair<std::string, std::string>> places{
      {"x", "2"}, {"-1", "2"}, {"0", "0"}, {"2", "2"}, {"1", "2x"}, {"1 ", "2"}};
  for (const auto& [rank, size] : places) {
    set_job(local_, rank, size);
    EXPECT_THAT(complaint(), HasSubstr("RONDO_")) << rank << " of " << size;
  }
}

TEST_F(EnvironmentTest, RefusesACoordinatorThatItDoesNotKnow) {
  for (const std::string& coordinator :
       {"tcp://1.2.3.4:5"s, "local:"s, "local:xyz"s, "0123"s, "tcp:host:1"s, "tcp:host/" + job_,
        "tcp::1/" + job_, "tcp:host:0/" + job_, "tcp:host:65536/" + job_, "tcp:host:1x/" + job_,
        "tcp:fe80::1:5/" + job_, "tcp:[host]:5/" + job_, "tcp:[]:5/" + job_, "tcp:ho st:5/" + job_,
        "tcp:host:1/" + job_ + "0", "tcp:host:1/" + job_.substr(1)}) {
    set_job(coordinator, "0", "1");
    EXPECT_THAT(complaint(), HasSubstr("local:JOB")) << coordinator;
  }
}

TEST_F(EnvironmentTest, TellsWhereTheStoreIs) {
  const std::vector<std::pair<std::string, Endpoint>> places{
      {"node7.cluster:4711", {.host = "node7.cluster", .port = 4711}},
      {"10.0.0.1:1", {.host = "10.0.0.1", .port = 1}},
      {"[fe80::1]:65535", {.host = "fe80::1", .port = 65535}}};
  for (const auto& [text, endpoint] : places) {
    set_job("tcp:" + text + "/" + job_, "1", "2");

    const auto placement = read_environment();

    ASSERT_TRUE(placement);
    EXPECT_EQ(placement->job, job_);
    EXPECT_EQ(placement->coordinator, endpoint);
    EXPECT_EQ(to_string(*placement->coordinator), text);
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

  const auto placement = read_environment();

  ASSERT_TRUE(placement);
  EXPECT_EQ(placement->listener, 7);
  EXPECT_EQ(placement->fabric, "ofi:tcp");
  EXPECT_EQ(placement->fake_nodes, 2);
  EXPECT_EQ(placement->interface, "ib0,^docker0");
  EXPECT_EQ(placement->latency_us, 12.5);
  EXPECT_EQ(placement->bandwidth_gbs, 10.0);
}

TEST_F(EnvironmentTest, RefusesOptionsThatMakeNoSense) {
  const std::vector<std::pair<std::string, std::string>> options{
      {"RONDO_LISTENER", "-1"},      {"RONDO_LISTENER", "x"},       {"RONDO_FAKE_NODES", "0"},
      {"RONDO_FAKE_NODES", "3"},     {"RONDO_LATENCY_US", "-1"},    {"RONDO_LATENCY_US", "nan"},
      {"RONDO_BANDWIDTH_GBS", "1x"}, {"RONDO_BANDWIDTH_GBS", "inf"}};
  for (const auto& [name, value] : options) {
    set_job(local_, "0", "2");
    set(name, value);
    EXPECT_THAT(complaint(), HasSubstr(name + "=")) << value;
    ::unsetenv(name.c_str());
  }
}

TEST_F(EnvironmentTest, RefusesToBeAloneUnderAnotherLauncher) {
  for (const char* name : {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS"}) {
    set(name, "4");
    EXPECT_THAT(complaint(), HasSubstr("rondo run -n 4"));
    set(name, "1");
    EXPECT_FALSE(read_environment());
    ::unsetenv(name);
  }
}

}  // namespace
}  // namespace rondo::transport::rendezvous::environment_test
