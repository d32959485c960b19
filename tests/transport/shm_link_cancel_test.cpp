// Transfers that the link inside a node gives up: the messages around them are not disturbed.

#include <signal.h>
#include <sys/mman.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <span>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "links/shm/ring.hpp"
#include "support/shm_links.hpp"

namespace rondo::transport::shm_link_cancel_test {
namespace {

using shm_link::eager_bytes;
using test::fill;
using test::filled;
using test::is_filled;
using test::ShmLinks;

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
}  // namespace rondo::transport::shm_link_cancel_test
