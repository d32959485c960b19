#include "rendezvous/environment.hpp"

#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <rondo/transport/error.hpp>

namespace rondo::transport::rendezvous {
namespace {

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
    for (const char* name : {"RONDO_COORDINATOR", "RONDO_RANK", "RONDO_SIZE",
                             "OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS"}) {
      ::unsetenv(name);
    }
  }

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
  for (const char* coordinator : {"tcp://1.2.3.4:5", "local:", "local:xyz", "0123"}) {
    set_job(coordinator, "0", "1");
    EXPECT_THAT(complaint(), HasSubstr("local:JOB")) << coordinator;
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
}  // namespace rondo::transport::rendezvous
