// The side channels of ranks that are threads.

#include <array>
#include <atomic>
#include <chrono>
#include <future>
#include <new>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "bootstrap/side_channel.hpp"
#include "support/store.hpp"
#include "verdict/wait_graph.hpp"

namespace rondo::transport::bootstrap::side_channel_test {
namespace {

using namespace std::chrono_literals;
using stores::error_of;
using stores::on_threads;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

using Channels = std::vector<std::unique_ptr<SideChannel>>;

std::string error_of_allgather(SideChannel& channel) {
  return error_of([&] { (void)channel.allgather("mine"); });
}

class SideChannelTest : public testing::TestWithParam<int> {};

TEST_P(SideChannelTest, GivesAllBlobsInRankOrderRoundAfterRound) {
  const int ranks = GetParam();
  const Channels channels = make_thread_channels(ranks, 60s);

  on_threads(ranks, [&](int rank) {
    for (int round = 0; round < 20; ++round) {
      const auto all =
          channels[static_cast<std::size_t>(rank)]->allgather(std::to_string(rank * 100 + round));

      ASSERT_EQ(all.size(), static_cast<std::size_t>(ranks));
      for (int r = 0; r < ranks; ++r) {
        EXPECT_EQ(all[static_cast<std::size_t>(r)], std::to_string(r * 100 + round));
      }
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Ranks, SideChannelTest, testing::Values(1, 2, 3, 9));

TEST(SideChannelTest, NamesWhoDidNotCome) {
  const Channels channels = make_thread_channels(4, 1s);

  on_threads(3, [&](int rank) {
    EXPECT_THAT(error_of_allgather(*channels[static_cast<std::size_t>(rank)]),
                HasSubstr("rank 3 of 4 did not come"));
  });
}

TEST(SideChannelTest, EndsAnAllgatherWhenARankLeaves) {
  Channels channels = make_thread_channels(2, 60s);
  std::jthread leaver([&] { channels[1].reset(); });

  EXPECT_THAT(error_of_allgather(*channels[0]), HasSubstr("rank 1"));
}

TEST(SideChannelTest, TellsAllOthersAndNotTheTeller) {
  std::vector<std::vector<std::string>> received(3);
  const Channels channels = make_thread_channels(3, 60s);
  for (std::size_t r = 0; r < 3; ++r) {
    channels[r]->watch(
        [&received, r](const StatusMessage& message) { received[r].push_back(message.text); });
  }

  channels[1]->tell({.kind = StatusMessage::Kind::aborted, .rank = 1, .text = "why"});

  EXPECT_THAT(received[0], ElementsAre("why"));
  EXPECT_TRUE(received[1].empty());
  EXPECT_THAT(received[2], ElementsAre("why"));
}

TEST(SideChannelTest, AnswersWhoIsAtFaultToTheRankThatAsks) {
  std::vector<std::pair<StatusMessage::Kind, int>> received;
  std::vector<StatusMessage::Kind> received_by_one;
  const Channels channels = make_thread_channels(3, 60s);
  channels[1]->watch(
      [&](const StatusMessage& message) { received_by_one.push_back(message.kind); });
  channels[2]->watch(
      [&](const StatusMessage& message) { received.emplace_back(message.kind, message.rank); });

  channels[1]->tell(
      {.kind = StatusMessage::Kind::waits, .rank = 1, .text = encode_ranks(std::array{0})});
  channels[2]->tell(
      {.kind = StatusMessage::Kind::asks, .rank = 2, .text = encode_ranks(std::array{1})});

  EXPECT_THAT(received, ElementsAre(std::pair(StatusMessage::Kind::at_fault, 0)));
  EXPECT_THAT(received_by_one, IsEmpty());
}

TEST(SideChannelTest, KeepsMessagesUntilSomebodyWatches) {
  std::vector<StatusMessage::Kind> received;
  const Channels channels = make_thread_channels(2, 60s);

  channels[1]->tell({.kind = StatusMessage::Kind::diverged, .rank = 1});
  channels[0]->watch([&](const StatusMessage& message) { received.push_back(message.kind); });

  EXPECT_THAT(received, ElementsAre(StatusMessage::Kind::diverged));
}

TEST(SideChannelTest, TellsOnceThatARankHasLeft) {
  int received = 0;
  Channels channels = make_thread_channels(2, 60s);
  channels[0]->watch([&](const StatusMessage& message) {
    EXPECT_EQ(message.kind, StatusMessage::Kind::left);
    EXPECT_EQ(message.rank, 1);
    received += 1;
  });

  channels[1]->tell({.kind = StatusMessage::Kind::left, .rank = 1});
  channels[1].reset();

  EXPECT_EQ(received, 1);
}

// Rank 1 leaves because of the mismatch that it hears of, before rank 0 has told rank 2.
TEST(SideChannelTest, TellsACauseToEveryoneBeforeItsConsequence) {
  std::vector<StatusMessage::Kind> received;
  const Channels channels = make_thread_channels(3, 60s);
  channels[1]->watch([&](const StatusMessage& message) {
    if (message.kind != StatusMessage::Kind::diverged) return;
    channels[1]->tell({.kind = StatusMessage::Kind::left, .rank = 1});
  });
  channels[2]->watch([&](const StatusMessage& message) { received.push_back(message.kind); });

  channels[0]->tell({.kind = StatusMessage::Kind::diverged, .rank = 0});

  EXPECT_THAT(received, ElementsAre(StatusMessage::Kind::diverged, StatusMessage::Kind::left));
}

TEST(SideChannelTest, LetsHandlersTellWhileOthersTell) {
  constexpr int rounds = 200;
  std::atomic<int> answers = 0;
  const Channels channels = make_thread_channels(2, 60s);
  for (int r = 0; r < 2; ++r) {
    channels[static_cast<std::size_t>(r)]->watch([&, r](const StatusMessage& message) {
      if (message.kind == StatusMessage::Kind::aborted) {
        channels[static_cast<std::size_t>(r)]->tell(
            {.kind = StatusMessage::Kind::diverged, .rank = r});
      } else {
        answers += 1;
      }
    });
  }

  on_threads(2, [&](int rank) {
    for (int i = 0; i < rounds; ++i) {
      channels[static_cast<std::size_t>(rank)]->tell(
          {.kind = StatusMessage::Kind::aborted, .rank = rank});
    }
  });

  EXPECT_EQ(answers, 2 * rounds);
}

// The thread that serves the store and receives status messages.

using Clock = std::chrono::steady_clock;

// Waits for nothing, and is told why it will not be called any more.
class IdleTask : public ServiceTask {
 public:
  void list(std::vector<pollfd>& /*entries*/) override {}
  [[nodiscard]] Clock::time_point due() const override { return Clock::time_point::max(); }
  void attend(std::span<const pollfd> /*entries*/, Clock::time_point /*now*/) override {}
  void on_failure(std::string_view why) noexcept override { why_.set_value(std::string(why)); }
  void finish() override {}
  [[nodiscard]] bool finished() const override { return true; }

  [[nodiscard]] std::string wait_for_failure() { return why_.get_future().get(); }

 private:
  std::promise<std::string> why_;
};

class OutOfMemory : public IdleTask {
 public:
  void attend(std::span<const pollfd> /*entries*/, Clock::time_point /*now*/) override {
    throw std::bad_alloc();
  }
};

TEST(ServiceThreadTest, AnExceptionOnItsThreadEndsTheTasksAndNotTheProcess) {
  OutOfMemory first;
  IdleTask second;
  ServiceThread service({&first, &second});

  service.wake();

  EXPECT_EQ(first.wait_for_failure(), "std::bad_alloc");
  EXPECT_EQ(second.wait_for_failure(), "std::bad_alloc");
}

}  // namespace
}  // namespace rondo::transport::bootstrap::side_channel_test
