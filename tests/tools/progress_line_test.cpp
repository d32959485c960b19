#include "progress_line.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <string>

namespace rondo::tools::progress_line_test {
namespace {

using testing::HasSubstr;

train::Progress some_progress() {
  train::Progress progress;
  progress.epoch = 2;
  progress.epochs = 8;
  progress.step = 120;
  progress.steps = 469;
  progress.loss = 0.41234;
  progress.accuracy = 85.25;
  progress.images_per_second = 12345.6;
  progress.communication_share = 0.0312;
  progress.seconds_left = 62.0;
  return progress;
}

// What was written to a stream that is not a terminal.
std::string written(const auto& write) {
  std::FILE* file = std::tmpfile();
  write(file);
  std::string text(static_cast<std::size_t>(std::ftell(file)), '\0');
  std::rewind(file);
  EXPECT_EQ(std::fread(text.data(), 1, text.size(), file), text.size());
  std::fclose(file);
  return text;
}

TEST(ProgressLineTest, ShowsEverythingWhenThereIsRoom) {
  EXPECT_EQ(format_progress(some_progress(), 200),
            "epoch 2/8  step 120/469  loss 0.4123  accuracy 85.25 %  12346 images/s  "
            "communication 3.1 %  left 1:02");
}

TEST(ProgressLineTest, CountsSamplesWhereRanksDoNotStepTogether) {
  train::Progress progress = some_progress();
  progress.samples = 7'680;
  progress.epoch_samples = 50'000;

  EXPECT_THAT(format_progress(progress, 200), HasSubstr("epoch 2/8  samples 7680/50000  loss"));
}

TEST(ProgressLineTest, SaysThatDelaysAreInjected) {
  train::Progress progress = some_progress();
  progress.injected = true;
  train::EpochMetrics metrics;
  metrics.injected = true;

  EXPECT_THAT(format_progress(progress, 40), HasSubstr("epoch 2/8 (delays injected)"));
  EXPECT_THAT(format_epoch(metrics, 8), HasSubstr("(delays injected)"));
}

TEST(ProgressLineTest, NeverExceedsTheWidth) {
  for (std::size_t width = 0; width < 120; ++width) {
    EXPECT_LE(format_progress(some_progress(), width).size(), width);
  }
}

TEST(ProgressLineTest, DropsWholePartsFromTheRight) {
  EXPECT_EQ(format_progress(some_progress(), 30), "epoch 2/8  step 120/469");
}

TEST(ProgressLineTest, WritesALineEverySoManyStepsWhenNotOnATerminal) {
  const std::string text = written([](std::FILE* file) {
    ProgressLine line(file, 60);
    train::Progress progress = some_progress();
    for (progress.step = 1; progress.step <= 120; ++progress.step) line.show(progress);
  });

  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 2);
  EXPECT_THAT(text, HasSubstr("step 60/469"));
  EXPECT_THAT(text, HasSubstr("step 120/469"));
  EXPECT_EQ(text.find('\r'), std::string::npos);
}

TEST(ProgressLineTest, FormatsAnEpoch) {
  train::EpochMetrics metrics;
  metrics.epoch = 3;
  metrics.loss = 0.5;
  metrics.accuracy = 90.125;
  metrics.images_per_second = 1000;
  metrics.seconds = 6.25;
  metrics.communication_share = 0.01;
  metrics.wait_share = 0.02;

  EXPECT_EQ(format_epoch(metrics, 8),
            "epoch 3/8: loss 0.5000, test accuracy 90.12 %, 1000 images/s, communication 1.0 %, "
            "waiting 2.0 %, 6.2 s");
}

}  // namespace
}  // namespace rondo::tools::progress_line_test
