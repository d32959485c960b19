// The link inside a node between ranks that run at the same time: threads, and processes.

#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <span>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "links/shm/ring.hpp"
#include "support/shm_links.hpp"

namespace rondo::transport::shm_link_ranks_test {
namespace {

using shm_link::eager_bytes;
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

// Transfers that the link inside a node gives up: what was sent around them is not disturbed.

constexpr std::size_t small = 8;
constexpr std::size_t large = 1'000'003;

TEST(ShmLinkCancelTest, LeavesTheMessageOfACancelledReceiveToTheNext) {
  for (const std::size_t bytes : {small, large}) {
    ShmLinks ranks(2);
    const auto data = filled(bytes, 1);
    std::vector<std::byte> given_up(bytes);
    std::vector<std::byte> received(bytes);
    std::array<Transfer, 3> transfers;

    ranks.link(1).post_recv(0, 1, given_up, transfers[0]);
    ranks.link(1).cancel(transfers[0]);
    ranks.link(0).post_send(1, 1, data, transfers[1]);
    ranks.link(1).post_recv(0, 1, received, transfers[2]);
    ranks.settle();

    EXPECT_TRUE(transfers[0].failed());
    EXPECT_EQ(ranks.link(1).error_text(transfers[0]), "it was cancelled");
    EXPECT_TRUE(transfers[1].done() && transfers[2].done());
    EXPECT_EQ(received, data);
  }
}

// The sender takes a large message back, before or after the receiver has heard of it.
void withdraw(ShmLinks& ranks, std::span<const std::byte> data, bool heard_of) {
  const auto next = filled(small, 2);
  std::vector<std::byte> received(large);
  std::array<std::byte, 1> other{};
  std::array<Transfer, 4> transfers;
  ranks.link(0).post_send(1, 1, data, transfers[0]);
  ranks.link(1).post_recv(0, 7, other, transfers[1]);
  if (heard_of) ranks.link(1).progress();

  ranks.link(0).cancel(transfers[0]);
  ranks.link(0).post_send(1, 1, next, transfers[2]);
  ranks.link(1).post_recv(0, 1, received, transfers[3]);
  ranks.settle();

  EXPECT_TRUE(transfers[0].failed());
  EXPECT_TRUE(transfers[2].done() && transfers[3].done());
  EXPECT_EQ(transfers[3].bytes, small);
  EXPECT_TRUE(is_filled(std::span(received).first(small), 2));
  ranks.link(1).cancel(transfers[1]);
}

TEST(ShmLinkCancelTest, PassesOverAMessageThatWasTakenBack) {
  for (const bool heard_of : {false, true}) {
    ShmLinks ranks(2);
    withdraw(ranks, filled(large, 1), heard_of);
    withdraw(ranks, ranks.arena(0, large), heard_of);
  }
}

// The receiver has begun to take a large message when one side gives it up.
struct HalfTaken {
  HalfTaken(ShmLinks& ranks, std::span<const std::byte> data) : received(data.size()) {
    ranks.link(1).post_recv(0, 1, received, receive);
    ranks.link(0).post_send(1, 1, data, send);
    for (int i = 0; i < 3; ++i) {
      ranks.link(1).progress();
      ranks.link(0).progress();
    }
    EXPECT_TRUE(receive.pending());
    EXPECT_TRUE(send.pending());
  }
  std::vector<std::byte> received;
  Transfer send = {};
  Transfer receive = {};
};

void expect_to_carry_on(ShmLinks& ranks) {
  const auto data = filled(large, 3);
  std::vector<std::byte> received(large);
  Transfer send;
  Transfer receive;
  ranks.link(0).post_send(1, 1, data, send);
  ranks.link(1).post_recv(0, 1, received, receive);
  ranks.settle();
  EXPECT_TRUE(send.done() && receive.done());
  EXPECT_EQ(received, data);
}

TEST(ShmLinkCancelTest, FailsTheReceiveOfAMessageThatIsTakenBackHalfWay) {
  ShmLinks ranks(2);
  const auto ordinary = filled(large, 1);
  for (const auto data : {std::span(ordinary), std::span<const std::byte>(ranks.arena(0, large))}) {
    HalfTaken half(ranks, data);

    ranks.link(0).cancel(half.send);
    ranks.settle();

    EXPECT_TRUE(half.receive.failed());
    EXPECT_EQ(ranks.link(1).error_text(half.receive), "its sender has cancelled the message");
    expect_to_carry_on(ranks);
  }
}

TEST(ShmLinkCancelTest, EndsTheSendOfAMessageWhoseReceiveIsGivenUpHalfWay) {
  ShmLinks ranks(2);
  const auto ordinary = filled(large, 1);
  for (const auto data : {std::span(ordinary), std::span<const std::byte>(ranks.arena(0, large))}) {
    HalfTaken half(ranks, data);

    ranks.link(1).cancel(half.receive);
    ranks.settle();

    EXPECT_TRUE(half.receive.failed());
    EXPECT_FALSE(half.send.pending());
    expect_to_carry_on(ranks);
  }
}

TEST(ShmLinkCancelTest, TakesBackASendThatWaitsForASlot) {
  ShmLinks ranks(2);
  std::deque<Transfer> sends(shm_link::ring_slots + 2);
  std::deque<Transfer> receives(shm_link::ring_slots + 2);
  const auto data = filled(small, 1);
  std::vector<std::byte> received(small);
  const std::size_t queued = shm_link::ring_slots;
  for (std::size_t i = 0; i < queued; ++i) ranks.link(0).post_send(1, 1, {}, sends[i]);
  ranks.link(0).post_send(1, 1, {}, sends[queued]);
  ranks.link(0).post_send(1, 1, data, sends[queued + 1]);

  ranks.link(0).cancel(sends[queued]);
  for (std::size_t i = 0; i <= queued; ++i) ranks.link(1).post_recv(0, 1, received, receives[i]);
  ranks.settle();

  EXPECT_TRUE(sends[queued].failed());
  EXPECT_TRUE(sends[queued + 1].done());
  EXPECT_EQ(receives[queued].bytes, small);
  EXPECT_EQ(received, data);
}

TEST(ShmLinkCancelTest, TakesBackASendToItself) {
  ShmLinks ranks(1);
  const auto data = filled(large, 1);
  std::vector<std::byte> received(large);
  std::array<Transfer, 4> transfers;

  ranks.link(0).post_send(0, 1, data, transfers[0]);
  ranks.link(0).cancel(transfers[0]);
  ranks.link(0).post_send(0, 1, data, transfers[1]);
  ranks.link(0).post_recv(0, 1, received, transfers[2]);
  ranks.link(0).progress();
  ranks.link(0).cancel(transfers[1]);

  EXPECT_TRUE(transfers[0].failed());
  EXPECT_TRUE(transfers[1].failed());
  EXPECT_TRUE(transfers[2].failed());
  EXPECT_FALSE(ranks.link(0).progress());
}

TEST(ShmLinkCancelTest, WithdrawsWhatIsUnderWayWhenTheSenderCloses) {
  ShmLinks ranks(2);
  const auto data = filled(large, 1);
  HalfTaken half(ranks, data);

  ranks.close(0);
  ranks.settle();

  EXPECT_TRUE(half.receive.failed());
}

// The sender takes a short message of its arena back, and writes over it, at the very moment at
// which the receiver reads it: that read is made to stop, and to go on afterwards.
class StoppedRead {
 public:
  StoppedRead(std::span<std::byte> memory, std::function<void()> meanwhile)
      : memory_(memory), meanwhile_(std::move(meanwhile)) {
    stopped = this;
    struct sigaction action{};
    action.sa_handler = [](int /*signal*/) { stopped->go_on(); };
    ::sigaction(SIGSEGV, &action, &before_);
    ::mprotect(memory_.data(), memory_.size(), PROT_NONE);
  }
  StoppedRead(const StoppedRead&) = delete;
  StoppedRead& operator=(const StoppedRead&) = delete;
  ~StoppedRead() {
    if (stopped == this) go_on();
  }

  [[nodiscard]] bool happened() const noexcept { return stopped != this; }

 private:
  void go_on() {
    stopped = nullptr;
    ::sigaction(SIGSEGV, &before_, nullptr);
    ::mprotect(memory_.data(), memory_.size(), PROT_READ | PROT_WRITE);
    meanwhile_();
  }

  static inline StoppedRead* stopped = nullptr;
  std::span<std::byte> memory_;
  std::function<void()> meanwhile_;
  struct sigaction before_{};
};

TEST(ShmLinkCancelTest, FailsAReceiveOfAShortMessageThatIsTakenBackWhileItIsRead) {
  constexpr std::size_t page = 4096;
  ShmLinks ranks(2);
  // The eager buffers first, so that the message is read in place.
  std::deque<Transfer> sends(64);
  const auto eager = filled(eager_bytes, 3);
  for (Transfer& send : sends) ranks.link(0).post_send(1, 2, eager, send);
  const std::span<std::byte> data = ranks.arena(0, page);
  fill(data, 1);
  std::vector<std::byte> received(page);
  Transfer send;
  Transfer receive;
  ranks.link(0).post_send(1, 1, data, send);
  ASSERT_TRUE(send.pending());
  ranks.settle();

  const StoppedRead read(data, [&] {
    ranks.link(0).cancel(send);
    fill(data, 2);
  });
  ranks.link(1).post_recv(0, 1, received, receive);
  ranks.settle();

  EXPECT_TRUE(read.happened());
  EXPECT_TRUE(receive.failed());
}

}  // namespace
}  // namespace rondo::transport::shm_link_ranks_test
