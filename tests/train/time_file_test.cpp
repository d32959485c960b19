#include "plan/compute_table.hpp"

#include <limits>
#include <map>
#include <string>

#include <gtest/gtest.h>

#include "support/scratch_folder.hpp"

namespace rondo::train::time_file_test {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

TEST(TimeFileTest, ReadsBackWhatWasWritten) {
  const rondo::test::ScratchFolder scratch;
  const std::filesystem::path file = scratch.path() / "new" / "times.json";

  write_times(file, {{"a", {.forward = 0.1, .backward_weights = 2e-7, .backward_data = 3.0}},
                     {"never", {infinity, infinity, infinity}}});
  const std::map<std::string, WorkSeconds> times = read_times(file);

  ASSERT_EQ(times.size(), 2U);
  EXPECT_EQ(times.at("a").forward, 0.1);
  EXPECT_EQ(times.at("a").backward_weights, 2e-7);
  EXPECT_EQ(times.at("a").backward_data, 3.0);
  EXPECT_EQ(times.at("never").total(), infinity);
}

TEST(TimeFileTest, LeavesNothingAside) {
  const rondo::test::ScratchFolder scratch;

  write_times(scratch.path() / "times.json", {});

  int files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(scratch.path())) {
    EXPECT_EQ(entry.path().filename(), "times.json");
    ++files;
  }
  EXPECT_EQ(files, 1);
}

TEST(TimeFileTest, KnowsNothingOfOtherFiles) {
  const rondo::test::ScratchFolder scratch;

  for (const char* text : {"", "[]", "{\"format\": 2, \"seconds\": {}}", "{\"format\": 1}",
                           "{\"format\": 1, \"seconds\": {\"a\": [1, 2]}}"}) {
    EXPECT_TRUE(read_times(scratch.write("times.json", text)).empty()) << text;
  }
  EXPECT_TRUE(read_times(scratch.path() / "absent.json").empty());
}

}  // namespace
}  // namespace rondo::train::time_file_test
