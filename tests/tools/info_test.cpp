// `rondo info` as a program.

#include <cstdlib>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "program.hpp"

namespace rondo::tools::test {
namespace {

using testing::HasSubstr;

TEST(InfoTest, PrintsOneJsonObject) {
  const auto facts = nlohmann::json::parse(rondo({"info", "--format", "json"}).out);

  EXPECT_GE(facts["cores"], 1);
  EXPECT_GE(facts["default_ranks"], 1);
  EXPECT_GE(facts["default_threads"], 1);
  EXPECT_GT(facts["memory_bytes"], 0);
  EXPECT_EQ(facts["links"][0], "shm");
}

TEST(InfoTest, SeesOnlyTheCoresThatItMayUse) {
  // Asked apart: a failure of rondo itself must not pass for a machine without CPU 0.
  if (std::system("taskset -c 0 true 2>/dev/null") != 0) {
    GTEST_SKIP() << "taskset cannot choose CPU 0 here";
  }

  const Ended ended = rondo(
      {"run", "-n", "1", "--", "taskset", "-c", "0", rondo_path(), "info", "--format", "json"});

  ASSERT_EQ(ended.status, 0) << ended.err;
  EXPECT_EQ(nlohmann::json::parse(ended.out)["hardware_threads"], 1);
}

TEST(InfoTest, NamesTheKernelsInText) {
  const Ended ended = rondo({"info"});

  EXPECT_EQ(ended.status, 0);
  EXPECT_THAT(ended.out, HasSubstr("oneDNN"));
  EXPECT_THAT(ended.out, HasSubstr("NUMA"));
}

}  // namespace
}  // namespace rondo::tools::test
