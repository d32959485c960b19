// The flight recorder's memory: how it is written, read at any moment, and put into words.

#include <atomic>
#include <cstdint>
#include <memory>
#include <thread>

#include <gtest/gtest.h>

#include "recorder/log.hpp"
#include "recorder/recorder.hpp"

namespace rondo::transport::recorder::recorder_test {
namespace {

TEST(RecorderTest, LeavesOutAnEntryThatIsBeingWritten) {
  const auto log = std::make_unique<Log>();
  for (std::uint64_t i = 1; i <= 3; ++i) static_cast<void>(record(*log, {.number = i}));
  log->ring[1].index.store(0);

  const auto entries = copy_entries(*log);

  ASSERT_EQ(entries.size(), 2U);
  EXPECT_EQ(entries[0].number, 1U);
  EXPECT_EQ(entries[1].number, 3U);
}

// Every field of an operation holds its index, so that a mixture of two could be told.
TEST(RecorderTest, IsReadWholeWhileItIsWritten) {
  const auto log = std::make_unique<Log>();
  std::atomic<bool> over{false};
  std::thread writer([&] {
    for (std::uint64_t i = 1; i <= 200'000; ++i) {
      static_cast<void>(record(*log, {.number = i, .count = i, .bytes = i}));
    }
    over = true;
  });

  std::uint64_t mixed = 0;
  while (!over) {
    for (const EntryCopy& entry : copy_entries(*log)) {
      const bool whole =
          entry.number == entry.index && entry.count == entry.index && entry.bytes == entry.index;
      mixed += whole ? 0 : 1;
    }
  }
  writer.join();

  EXPECT_EQ(mixed, 0U);
  EXPECT_EQ(copy_entries(*log).back().index, 200'000U);
}

TEST(RecorderTest, AnEndAfterTheEntryWasTakenByAnotherIsNotNoted) {
  const auto log = std::make_unique<Log>();
  Stamp old = record(*log, {.stage = Stage::running});
  for (std::size_t i = 0; i < log_entries; ++i) {
    static_cast<void>(record(*log, {.stage = Stage::published}));
  }

  old.note(Stage::complete);

  const auto last = copy_entries(*log).back();
  EXPECT_EQ(last.index, log_entries + 1);
  EXPECT_EQ(last.stage, static_cast<std::uint8_t>(Stage::published));
  EXPECT_EQ(last.ended, 0U);
}

TEST(RecorderTest, TimesTheEndOfASmallOperationOnlyWhenItWasWaitedFor) {
  const auto log = std::make_unique<Log>();
  Stamp quick = record(*log, {.stage = Stage::published});
  Stamp late = record(*log, {.stage = Stage::published});

  quick.note_untimed(Stage::complete);
  late.note_untimed(Stage::complete);
  late.end();

  const auto entries = copy_entries(*log);
  EXPECT_EQ(entries[0].stage, static_cast<std::uint8_t>(Stage::complete));
  EXPECT_EQ(entries[0].ended, 0U);
  EXPECT_GE(entries[1].ended, entries[1].posted);
}

TEST(RecorderTest, TurnsTicksIntoMicrosecondsByTheOtherClock) {
  const TickScale scale({.ticks = 1000, .monotonic_ns = 50'000, .unix_ns = 0},
                        {.ticks = 5000, .monotonic_ns = 52'000, .unix_ns = 0});

  EXPECT_DOUBLE_EQ(scale.microseconds(1000), 0.0);
  EXPECT_DOUBLE_EQ(scale.microseconds(3000), 1.0);
  EXPECT_DOUBLE_EQ(scale.microseconds(800), -0.1);
}

TEST(RecorderTest, KeepsTheFirstFailure) {
  auto memory = std::make_shared<Memory>(Memory::create());
  Recorder recorder(memory, 1, 2, "here");

  recorder.note_failure(Errc::peer_lost, "rank 0 is lost");
  recorder.note_failure(Errc::aborted, "a consequence");

  EXPECT_NE(to_json(*memory, "").find("rank 0 is lost"), std::string::npos);
  EXPECT_EQ(to_json(*memory, "").find("a consequence"), std::string::npos);
}

TEST(RecorderTest, CutsAFailureThatIsTooLong) {
  auto memory = std::make_shared<Memory>(Memory::create());
  Recorder recorder(memory, 0, 1, std::string(1000, 'h'));

  recorder.note_failure(Errc::aborted, std::string(5000, 'x'));

  const std::string json = to_json(*memory, "");
  EXPECT_NE(json.find(std::string(959, 'x') + '"'), std::string::npos);
  EXPECT_NE(json.find(std::string(63, 'h') + '"'), std::string::npos);
}

TEST(RecorderTest, QuotesWhatJsonDoesNotTake) {
  EXPECT_EQ(quoted("a \"b\" \\ \n\x01"), R"("a \"b\" \\ \u000a\u0001")");
  EXPECT_EQ(quoted("Grüße, 世界 \U0001F600"), "\"Grüße, 世界 \U0001F600\"");
  EXPECT_EQ(quoted("\xFF\xC3"), "\"??\"");            // no UTF-8; cut in the middle
  EXPECT_EQ(quoted("\xC0\x80"), "\"??\"");            // overlong
  EXPECT_EQ(quoted("\xED\xA0\x80"), "\"???\"");       // half of a surrogate pair
  EXPECT_EQ(quoted("\xF4\x90\x80\x80"), "\"????\"");  // beyond the last character
}

}  // namespace
}  // namespace rondo::transport::recorder::recorder_test
