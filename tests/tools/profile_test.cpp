// The profile of a training run: which steps, the rows of its table, and what the program writes.

#include "train/profile.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "failure.hpp"

namespace rondo::tools::profile_test {
namespace {

using testing::SizeIs;
using train::KernelTime;
using train::StepProfile;

ProfileRow row_of(const std::vector<ProfileRow>& rows, const std::string& layer,
                  const std::string& pass) {
  for (const ProfileRow& row : rows) {
    if (row.layer == layer && row.pass == pass) return row;
  }
  ADD_FAILURE() << "there is no row " << layer << " " << pass;
  return {};
}

// Two micro-batches of one layer, in each of `steps` steps.
StepProfile profile_of(int steps) {
  StepProfile profile(1, steps);
  for (int step = 1; step <= steps; ++step) {
    const StepProfile::Step whole(&profile, step);
    for (int micro_batch = 0; micro_batch < 2; ++micro_batch) {
      for (const char* pass : {"forward", "backward_parameters", "backward_input", "exchange"}) {
        const StepProfile::Part part(&profile, pass, "conv1");
      }
    }
  }
  return profile;
}

TEST(ProfileTest, ReadsARangeOfSteps) {
  EXPECT_EQ(parse_steps("3:7").first, 3);
  EXPECT_EQ(parse_steps("3:7").last, 7);
  EXPECT_EQ(parse_steps("5:5").last, 5);
  for (const char* wrong : {"", "3", "3:", ":7", "7:3", "0:2", "-1:2", "3:7x", "a:b", "1:2:3"}) {
    EXPECT_THROW((void)parse_steps(wrong), UsageError) << wrong;
  }
}

TEST(ProfileTest, RecordsTheStepsOfItsRangeAlone) {
  StepProfile profile(2, 3);

  for (int step = 1; step <= 5; ++step) {
    const StepProfile::Step whole(&profile, step);
    const StepProfile::Part part(&profile, "load");
  }

  EXPECT_EQ(profile.steps(), 2);
  ASSERT_THAT(profile.spans(), SizeIs(4));
  EXPECT_EQ(profile.spans()[0].step, 2);
  EXPECT_STREQ(profile.spans()[0].part, "load");
  EXPECT_STREQ(profile.spans()[3].part, "step");
  EXPECT_LE(profile.spans()[1].begin_ns, profile.spans()[0].begin_ns);
  EXPECT_GE(profile.spans()[1].end_ns, profile.spans()[0].end_ns);
}

TEST(ProfileTest, RecordsNothingOfStepsAndPartsWithoutAProfile) {
  StepProfile profile(1, 5);

  {
    const StepProfile::Step without(nullptr, 1);
    const StepProfile::Part outside(&profile, "load");
  }
  {
    const StepProfile::Step whole(&profile, 2);
    const StepProfile::Part without(nullptr, "load");
  }

  EXPECT_EQ(profile.steps(), 1);
  ASSERT_THAT(profile.spans(), SizeIs(1));
  EXPECT_STREQ(profile.spans()[0].part, "step");
  EXPECT_EQ(profile.spans()[0].step, 2);
}

TEST(ProfileTest, PutsTheKernelAloneBesideTheSameInTheStep) {
  const std::vector<KernelTime> warm = {
      {.layer = "conv1", .direction = "forward", .microseconds = 3},
      {.layer = "conv1", .direction = "backward_weights", .microseconds = 4},
      {.layer = "conv1", .direction = "backward_data", .microseconds = 5},
      {.layer = "adamw", .direction = "update", .microseconds = 7}};

  const auto rows = profile_rows(profile_of(4), warm, {});

  EXPECT_EQ(row_of(rows, "conv1", "forward").calls, 2.0);
  EXPECT_EQ(row_of(rows, "conv1", "forward").warm, 6.0);
  EXPECT_EQ(row_of(rows, "conv1", "backward").warm, 18.0);
  EXPECT_FALSE(row_of(rows, "conv1", "backward").cold.has_value());
  EXPECT_EQ(row_of(rows, "", "sum of these kernels").warm, 24.0);
  EXPECT_EQ(row_of(rows, "", "optimizer, alone; in the step within the scheme").warm, 7.0);
}

// backward has no kernel alone.
TEST(ProfileTest, ComparesTheSameKernelsInTheStepAndAlone) {
  const std::vector<KernelTime> warm = {
      {.layer = "conv1", .direction = "forward", .microseconds = 3}};

  const auto rows = profile_rows(profile_of(4), warm, warm);

  EXPECT_EQ(row_of(rows, "", "sum of these kernels").step, row_of(rows, "conv1", "forward").step);
  EXPECT_EQ(row_of(rows, "", "layers without kernels alone").step,
            row_of(rows, "conv1", "backward").step);
  EXPECT_FALSE(row_of(rows, "", "layers without kernels alone").warm.has_value());
}

TEST(ProfileTest, TellsWhichStepsWereRun) {
  StepProfile profile(2, 3);
  EXPECT_EQ(profile.last_run(), 0);
  for (int step = 7; step <= 9; ++step) const StepProfile::Step whole(&profile, step);

  EXPECT_EQ(profile.steps(), 0);
  EXPECT_EQ(profile.first_run(), 7);
  EXPECT_EQ(profile.last_run(), 9);
}

TEST(ProfileTest, AttributesTheWholeStep) {
  const auto rows = profile_rows(profile_of(2), {}, {});

  double sum = 0.0;
  const auto kernels = std::ranges::find(rows, "sum of these kernels", &ProfileRow::pass);
  for (auto row = kernels; row != rows.end(); ++row) {
    if (row->pass != "whole step") sum += row->step.value_or(0.0);
  }

  EXPECT_NEAR(sum, *row_of(rows, "", "whole step").step, 1e-6);  // rounding of sums
}

}  // namespace
}  // namespace rondo::tools::profile_test
