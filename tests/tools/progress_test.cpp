// The output of `rondo train` for people.

#include "train/training.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace rondo::tools::progress_test {
namespace {

using testing::ContainsRegex;
using testing::HasSubstr;
using testing::Not;

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

TEST(ProgressLineTest, DropsWholePartsFromTheRightAndNeverExceedsTheWidth) {
  EXPECT_EQ(format_progress(some_progress(), 30), "epoch 2/8  step 120/469");
  for (std::size_t width = 0; width < 120; ++width) {
    EXPECT_LE(format_progress(some_progress(), width).size(), width);
  }
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

// The text that a terminal of this kind was sent.
std::string sent_to_terminal(const char* kind) {
  ::setenv("TERM", kind, 1);
  const int master = ::posix_openpt(O_RDWR | O_NOCTTY | O_NONBLOCK);
  EXPECT_EQ(::grantpt(master) + ::unlockpt(master), 0);
  std::FILE* const terminal = std::fopen(::ptsname(master), "w");
  {
    ProgressLine line(terminal, 60);
    train::Progress progress = some_progress();
    line.show(progress);
    line.print("a note");
  }
  std::string text(4096, '\0');
  text.resize(static_cast<std::size_t>(std::max<ssize_t>(::read(master, text.data(), 4096), 0)));
  std::fclose(terminal);
  ::close(master);
  return text;
}

TEST(ProgressLineTest, ErasesNoLineOnATerminalThatCannot) {
  EXPECT_THAT(sent_to_terminal("xterm"), HasSubstr("\x1b[K"));
  EXPECT_EQ(sent_to_terminal("dumb").find('\x1b'), std::string::npos);
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

train::RunSummary some_summary() {
  train::RunSummary summary;
  summary.scheme = "k_step";
  summary.training_seconds = 20.0;
  summary.communication_seconds = 1.0;
  summary.wait_seconds = 4.0;
  summary.global_reductions = 10;
  summary.synchronous_reductions = 160;
  summary.global_bytes = 10 << 20;
  summary.synchronous_bytes = 160 << 20;
  summary.bytes_sent = 15 << 20;
  summary.synchronous_bytes_sent = 240 << 20;
  return summary;
}

TEST(SummaryTableTest, SetsReductionsAndBytesBesideThoseOfSynchronous) {
  const std::string text = format_summary(some_summary());
  EXPECT_THAT(text, ContainsRegex("communication +k_step +synchronous +difference"));
  EXPECT_THAT(text, ContainsRegex("global reductions +10 +160  93.75 % less, 150 avoided"));
  EXPECT_THAT(text, ContainsRegex("bytes reduced +10.0 MiB +160.0 MiB  93.75 % less"));
  EXPECT_THAT(text, ContainsRegex("bytes sent +15.0 MiB +240.0 MiB  93.75 % less"));
  EXPECT_THAT(text, HasSubstr("of 20.0 s of training 1.0 s (5.0 %) were communication and 4.0 s "));
  EXPECT_THAT(text, Not(HasSubstr("lazy")));
  EXPECT_THAT(text, Not(HasSubstr("injected")));
}

// Also what lazy layers have saved, and which delays were injected.
TEST(SummaryTableTest, SaysMoreWhereThereIsMore) {
  train::RunSummary summary = some_summary();
  summary.local_reductions = 30;
  summary.local_bytes = 190 << 20;
  summary.bytes_sent = summary.synchronous_bytes_sent;
  summary.lazy_iterations = 100;
  summary.lazy_reductions = 20;
  summary.injected = {"rank 3 computes 4 times as slowly", "10 us of latency between nodes"};
  const std::string text = format_summary(summary);
  EXPECT_THAT(text, ContainsRegex("local reductions +30 +0"));
  EXPECT_THAT(text, ContainsRegex("bytes reduced +200.0 MiB +160.0 MiB  25.00 % more"));
  EXPECT_THAT(text, ContainsRegex("bytes sent +240.0 MiB +240.0 MiB  as synchronous"));
  EXPECT_THAT(text, ContainsRegex("of lazy layers +20 +100  80.00 % saved"));
  EXPECT_THAT(text, HasSubstr("injected delays: rank 3 computes 4 times as slowly; 10 us of"));
}

}  // namespace
}  // namespace rondo::tools::progress_test
