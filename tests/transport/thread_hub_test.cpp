// The side channels of ranks that are threads.

#include "bootstrap/thread_hub.hpp"

#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <rondo/transport/error.hpp>

namespace rondo::transport::rendezvous::thread_hub_test {
namespace {

using namespace std::chrono_literals;
using testing::ElementsAre;
using testing::HasSubstr;
using Channels = std::vector<std::unique_ptr<SideChannel>>;

// Calls `body(rank)` on a thread per rank.
template <class Body>
void on_threads(int ranks, Body body) {
  std::vector<std::jthread> threads;
  threads.reserve(static_cast<std::size_t>(ranks));
  for (int r = 0; r < ranks; ++r) threads.emplace_back([&body, r] { body(r); });
}

std::string complaint_of(SideChannel& channel) {
  try {
    (void)channel.allgather("mine");
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Errc::rendezvous_failed);
    return error.what();
  }
  return "no complaint";
}

class ThreadHubTest : public testing::TestWithParam<int> {};

TEST_P(ThreadHubTest, GivesAllBlobsInRankOrderRoundAfterRound) {
  const int ranks = GetParam();
  const Channels channels = make_thread_hub(ranks, 60s);

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

INSTANTIATE_TEST_SUITE_P(Ranks, ThreadHubTest, testing::Values(1, 2, 3, 9));

TEST(ThreadHubTest, NamesWhoDidNotCome) {
  const Channels channels = make_thread_hub(4, 50ms);

  on_threads(3, [&](int rank) {
    EXPECT_THAT(complaint_of(*channels[static_cast<std::size_t>(rank)]),
                HasSubstr("rank 3 of 4 did not come"));
  });
}

TEST(ThreadHubTest, EndsAnAllgatherWhenARankLeaves) {
  Channels channels = make_thread_hub(2, 60s);
  std::jthread leaver([&] { channels[1].reset(); });

  EXPECT_THAT(complaint_of(*channels[0]), HasSubstr("rank 1"));
}

TEST(ThreadHubTest, TellsAllOthersAndNotTheTeller) {
  std::vector<std::vector<std::string>> heard(3);
  const Channels channels = make_thread_hub(3, 60s);
  for (std::size_t r = 0; r < 3; ++r) {
    channels[r]->watch([&heard, r](const News& news) { heard[r].push_back(news.text); });
  }

  channels[1]->tell({.kind = News::Kind::aborted, .rank = 1, .text = "why"});

  EXPECT_THAT(heard[0], ElementsAre("why"));
  EXPECT_TRUE(heard[1].empty());
  EXPECT_THAT(heard[2], ElementsAre("why"));
}

TEST(ThreadHubTest, KeepsNewsUntilSomebodyWatches) {
  std::vector<News::Kind> heard;
  const Channels channels = make_thread_hub(2, 60s);

  channels[1]->tell({.kind = News::Kind::diverged, .rank = 1});
  channels[0]->watch([&](const News& news) { heard.push_back(news.kind); });

  EXPECT_THAT(heard, ElementsAre(News::Kind::diverged));
}

TEST(ThreadHubTest, TellsOnceThatARankHasLeft) {
  int heard = 0;
  Channels channels = make_thread_hub(2, 60s);
  channels[0]->watch([&](const News& news) {
    EXPECT_EQ(news.kind, News::Kind::left);
    EXPECT_EQ(news.rank, 1);
    heard += 1;
  });

  channels[1]->tell({.kind = News::Kind::left, .rank = 1});
  channels[1].reset();

  EXPECT_EQ(heard, 1);
}

TEST(ThreadHubTest, LetsHandlersTellWhileOthersTell) {
  constexpr int rounds = 200;
  std::atomic<int> answers = 0;
  const Channels channels = make_thread_hub(2, 60s);
  for (int r = 0; r < 2; ++r) {
    channels[static_cast<std::size_t>(r)]->watch([&, r](const News& news) {
      if (news.kind == News::Kind::aborted) {
        channels[static_cast<std::size_t>(r)]->tell({.kind = News::Kind::diverged, .rank = r});
      } else {
        answers += 1;
      }
    });
  }

  on_threads(2, [&](int rank) {
    for (int i = 0; i < rounds; ++i) {
      channels[static_cast<std::size_t>(rank)]->tell({.kind = News::Kind::aborted, .rank = rank});
    }
  });

  EXPECT_EQ(answers, 2 * rounds);
}

}  // namespace
}  // namespace rondo::transport::rendezvous::thread_hub_test
