// The link inside a node between ranks that run at the same time: threads, and processes.

#include <sys/wait.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "support/shm_links.hpp"

namespace rondo::transport::shm_link_ranks_test {
namespace {

using test::fill;
using test::filled;
using test::finish;
using test::is_filled;
using test::ShmLinks;

std::uint32_t seed_of(int from, int to, std::uint32_t round) {
  return static_cast<std::uint32_t>(from) * 131U + static_cast<std::uint32_t>(to) * 17U + round;
}

// Slot, eager buffer, and larger; every pair has its own.
std::size_t bytes_of(int from, int to, std::uint32_t round) {
  constexpr std::size_t most = 100'000;
  const std::uint32_t seed = seed_of(from, to, round);
  return seed % 3 == 0 ? seed % 57 : seed % 3 == 1 ? seed * 31 % 8193 : seed * 7919U % most;
}

/// Every rank sends to every rank, itself too, and receives from all, in several rounds.
void exchange(ShmLinks& ranks, Link& link, int rank, std::uint32_t rounds) {
  for (std::uint32_t round = 0; round < rounds; ++round) {
    std::vector<std::vector<std::byte>> sent;
    std::vector<std::vector<std::byte>> received;
    std::deque<Transfer> transfers(2 * static_cast<std::size_t>(ranks.size()));
    for (int peer = 0; peer < ranks.size(); ++peer) {
      sent.push_back(filled(bytes_of(rank, peer, round), seed_of(rank, peer, round)));
      received.emplace_back(bytes_of(peer, rank, round));
    }
    for (int peer = 0; peer < ranks.size(); ++peer) {
      const auto p = static_cast<std::size_t>(peer);
      link.post_send(peer, round % 4, sent[p], transfers[2 * p]);
      link.post_recv(peer, round % 4, received[p], transfers[2 * p + 1]);
    }
    for (const Transfer& transfer : transfers) finish(link, transfer);
    for (int peer = 0; peer < ranks.size(); ++peer) {
      EXPECT_TRUE(is_filled(received[static_cast<std::size_t>(peer)], seed_of(peer, rank, round)))
          << "rank " << rank << ", from " << peer << ", round " << round;
    }
  }
}

class ShmLinkRanksTest : public testing::TestWithParam<int> {};

TEST_P(ShmLinkRanksTest, ThreadsExchangeWithAllOthers) {
  ShmLinks ranks(GetParam());
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks.size(); ++rank) {
    threads.emplace_back([&ranks, rank] { exchange(ranks, ranks.link(rank), rank, 6); });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST_P(ShmLinkRanksTest, ProcessesExchangeWithAllOthers) {
  ShmLinks ranks(GetParam());
  std::vector<pid_t> processes;
  for (int rank = 0; rank < ranks.size(); ++rank) {
    processes.push_back(::fork());
    if (processes.back() != 0) continue;
    exchange(ranks, ranks.link(rank), rank, 6);
    ::_exit(testing::Test::HasFailure() ? 1 : 0);
  }
  for (const pid_t process : processes) {
    int status = -1;
    ::waitpid(process, &status, 0);
    EXPECT_EQ(status, 0);
  }
}

INSTANTIATE_TEST_SUITE_P(Shm, ShmLinkRanksTest, testing::Values(1, 2, 3, 5, 16));

TEST(ShmLinkThreadsTest, CarriesAStreamOfMessagesOfAllSizes) {
  constexpr std::uint32_t messages = 600;
  ShmLinks ranks(2);
  std::thread sender([&] {
    std::vector<std::vector<std::byte>> data;
    std::deque<Transfer> sends(messages);
    for (std::uint32_t i = 0; i < messages; ++i) {
      data.push_back(filled(bytes_of(0, 1, i) / 4, i));
      ranks.link(0).post_send(1, 1, data.back(), sends[i]);
      ranks.link(0).progress();
    }
    for (const Transfer& send : sends) finish(ranks.link(0), send);
  });
  for (std::uint32_t i = 0; i < messages; ++i) {
    std::vector<std::byte> received(bytes_of(0, 1, i) / 4);
    Transfer receive;

    ranks.link(1).post_recv(0, 1, received, receive);
    finish(ranks.link(1), receive);

    ASSERT_EQ(receive.bytes, received.size());
    ASSERT_TRUE(is_filled(received, i)) << "message " << i;
  }
  sender.join();
}

TEST(ShmLinkThreadsTest, PassesATokenOutOfTheArenaRoundARing) {
  constexpr int size = 4;
  constexpr std::uint32_t rounds = 20;
  constexpr std::size_t bytes = 20'000;
  ShmLinks ranks(size);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank) {
    threads.emplace_back([&ranks, rank] {
      Link& link = ranks.link(rank);
      const auto token = ranks.arena(rank, bytes);
      for (std::uint32_t round = 0; round < rounds; ++round) {
        Transfer receive;
        if (rank == 0) {
          fill(token, round);
        } else {
          link.post_recv(rank - 1, 1, token, receive);
          finish(link, receive);
        }
        Transfer send;
        link.post_send((rank + 1) % size, 1, token, send);
        if (rank == 0) {
          finish(link, send);
          link.post_recv(size - 1, 1, token, receive);
          finish(link, receive);
          EXPECT_TRUE(is_filled(token, round)) << "round " << round;
        } else {
          finish(link, send);
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace rondo::transport::shm_link_ranks_test
