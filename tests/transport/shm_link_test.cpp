// The promises of the link inside a node beyond those of every link. One thread drives the links of
// both ranks, so that each case says exactly what has happened before what.

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <span>
#include <vector>

#include <gtest/gtest.h>

#include "links/shm/ring.hpp"
#include "support/allocations.hpp"
#include "support/shm_links.hpp"

namespace rondo::transport::shm_link_test {
namespace {

using shm_link::bounce_bytes;
using shm_link::eager_bytes;
using shm_link::fragment_bytes;
using shm_link::ring_payload_bytes;
using shm_link::ring_slots;
using test::fill;
using test::filled;
using test::is_filled;
using test::ShmLinks;

// All ways a message can take: in its slot, in an eager buffer, through a bounce buffer, out of the
// arena.
constexpr std::array<std::size_t, 13> sizes{0,
                                            1,
                                            ring_payload_bytes,
                                            ring_payload_bytes + 1,
                                            eager_bytes,
                                            eager_bytes + 1,
                                            fragment_bytes - 1,
                                            fragment_bytes,
                                            fragment_bytes + 1,
                                            bounce_bytes,
                                            bounce_bytes + 1,
                                            3 * bounce_bytes,
                                            1'000'003};
constexpr std::size_t large = 1'000'003;

TEST(ShmLinkTest, DeliversEverySizeOutOfTheArena) {
  ShmLinks ranks(2);
  for (const std::size_t bytes : sizes) {
    for (const bool posted_first : {true, false}) {
      const auto data = ranks.arena(0, bytes);
      fill(data, 5);
      std::vector<std::byte> received(bytes + 1);
      Transfer send;
      Transfer receive;
      if (posted_first) ranks.link(1).post_recv(0, 9, received, receive);
      ranks.link(0).post_send(1, 9, data, send);
      ranks.settle();
      if (!posted_first) ranks.link(1).post_recv(0, 9, received, receive);
      ranks.settle();

      ASSERT_TRUE(send.done() && receive.done()) << bytes;
      EXPECT_EQ(receive.bytes, bytes);
      EXPECT_TRUE(is_filled(std::span(received).first(bytes), 5));
      EXPECT_EQ(received.back(), std::byte{0});
    }
  }
}

TEST(ShmLinkTest, IsDoneWithASmallSendAtOnce) {
  ShmLinks ranks(2);
  auto data = filled(eager_bytes, 1);
  std::vector<std::byte> received(eager_bytes);
  Transfer send;
  Transfer receive;

  ranks.link(0).post_send(1, 3, data, send);
  const bool at_once = send.done();
  fill(data, 2);
  ranks.link(1).post_recv(0, 3, received, receive);
  ranks.settle();

  EXPECT_TRUE(at_once);
  EXPECT_TRUE(is_filled(received, 1));
}

TEST(ShmLinkTest, LeavesALargeMessageWithItsSenderUntilItIsMatched) {
  ShmLinks ranks(2);
  const auto data = filled(large, 1);
  std::vector<std::byte> other(1);
  std::vector<std::byte> received(large);
  std::array<Transfer, 3> transfers;

  ranks.link(0).post_send(1, 3, data, transfers[0]);
  ranks.link(1).post_recv(0, 4, other, transfers[1]);
  ranks.settle();
  const bool before = transfers[0].done();
  ranks.link(1).post_recv(0, 3, received, transfers[2]);
  ranks.settle();

  EXPECT_FALSE(before);
  EXPECT_TRUE(transfers[0].done() && transfers[2].done());
  EXPECT_TRUE(is_filled(received, 1));
  EXPECT_TRUE(transfers[1].pending());
  ranks.link(1).cancel(transfers[1]);
}

TEST(ShmLinkTest, HoldsSendsBackWhenManyMessagesAreNotAskedFor) {
  constexpr std::size_t messages = 2000;
  ShmLinks ranks(2);
  std::vector<std::uint64_t> sent(messages);
  std::vector<std::uint64_t> received(messages);
  std::deque<Transfer> transfers(2 * messages);

  for (std::size_t i = 0; i < messages; ++i) {
    sent[i] = i;
    ranks.link(0).post_send(1, 1, std::as_bytes(std::span(&sent[i], 1)), transfers[i]);
  }
  (void)ranks.link(1);
  ranks.settle();
  const bool many_taken = transfers[1000].done();
  const bool all_taken = transfers[messages - 1].done();
  for (std::size_t i = 0; i < messages; ++i) {
    ranks.link(1).post_recv(0, 1, std::as_writable_bytes(std::span(&received[i], 1)),
                            transfers[messages + i]);
  }
  ranks.settle();

  EXPECT_TRUE(many_taken);
  EXPECT_FALSE(all_taken);
  for (const Transfer& transfer : transfers) EXPECT_TRUE(transfer.done());
  EXPECT_EQ(received, sent);
}

TEST(ShmLinkTest, SendsToItself) {
  for (const bool posted_first : {false, true}) {
    ShmLinks ranks(1);
    for (const std::size_t bytes : sizes) {
      const auto sent = filled(bytes, 3);
      std::vector<std::byte> received(bytes);
      Transfer send;
      Transfer receive;

      if (posted_first) ranks.link(0).post_recv(0, 1, received, receive);
      ranks.link(0).post_send(0, 1, sent, send);
      EXPECT_EQ(send.done(), bytes <= ring_payload_bytes || (posted_first && bytes <= eager_bytes));
      if (!posted_first) ranks.link(0).post_recv(0, 1, received, receive);
      ranks.settle();

      EXPECT_TRUE(send.done() && receive.done()) << bytes;
      EXPECT_EQ(received, sent);
    }
  }
}

TEST(ShmLinkTest, ReachesNoRankOfAnotherNode) {
  ShmLinks ranks(1);
  const auto link = open_shm_link(0, {&ranks.memory(0), nullptr}, true);
  std::array<std::byte, 4> data{};
  Transfer send;
  Transfer receive;

  link->post_send(1, 0, data, send);
  link->post_recv(1, 0, data, receive);

  EXPECT_TRUE(send.failed() && receive.failed());
  EXPECT_EQ(link->error_text(send), "the rank is on another node");
}

TEST(ShmLinkTest, UsesBoundedMemoryForLargeMessages) {
  ShmLinks ranks(2);
  const auto data = filled(40 * bounce_bytes, 1);
  std::vector<std::byte> received(data.size());
  (void)ranks.link(0);
  const std::size_t before = ranks.memory(0).control().size();
  Transfer send;
  Transfer receive;

  ranks.link(0).post_send(1, 0, data, send);
  ranks.link(1).post_recv(0, 0, received, receive);
  ranks.settle();

  EXPECT_EQ(received, data);
  EXPECT_LT(ranks.memory(0).control().size() - before, bounce_bytes + 64 * 1024);
}

// As one that computes for long, or that has died.
TEST(ShmLinkTest, ReachesOthersWhileAPeerLeavesItsMessagesHalfReceived) {
  constexpr std::size_t messages = 40;
  ShmLinks ranks(3);
  const auto data = filled(bounce_bytes, 1);
  std::vector<std::vector<std::byte>> room(messages + 1, std::vector<std::byte>(data.size()));
  std::deque<Transfer> sends(messages + 1);
  std::deque<Transfer> receives(messages + 1);
  for (std::size_t i = 0; i < messages; ++i) {
    ranks.link(1).post_recv(0, i, room[i], receives[i]);
    ranks.link(0).post_send(1, i, data, sends[i]);
  }
  ranks.link(1).progress();  // asks for all of them
  while (ranks.link(0).progress()) continue;

  ranks.link(0).post_send(2, 1, data, sends[messages]);
  ranks.link(2).post_recv(0, 1, room[messages], receives[messages]);
  for (bool moved = true; moved;) {
    moved = ranks.link(0).progress();
    moved = ranks.link(2).progress() || moved;
  }

  EXPECT_TRUE(sends[messages].done() && receives[messages].done());
  EXPECT_EQ(room[messages], data);
  ranks.settle();
  EXPECT_TRUE(std::ranges::all_of(receives, &Transfer::done));
}

// One message of each size to the other rank, which answers with it.
void exchange_all_sizes(ShmLinks& ranks, std::span<std::byte> there, std::span<std::byte> here) {
  for (const std::size_t bytes : sizes) {
    std::array<Transfer, 4> transfers;
    ranks.link(0).post_send(1, 1, there.first(bytes), transfers[0]);
    ranks.link(0).post_recv(1, 2, here.first(bytes), transfers[1]);
    ranks.link(1).post_recv(0, 1, here.first(bytes), transfers[2]);
    ranks.settle();
    ranks.link(1).post_send(0, 2, there.first(bytes), transfers[3]);
    ranks.settle();
    for (const Transfer& transfer : transfers) ASSERT_TRUE(transfer.done());
  }
}

TEST(ShmLinkTest, AllocatesNothingOnceItHasCarriedEachSize) {
  ShmLinks ranks(2);
  std::vector<std::byte> there(large);
  std::vector<std::byte> here(large);
  exchange_all_sizes(ranks, there, here);
  const std::size_t before = test::allocations_of_this_thread();
  const std::size_t memory_before = ranks.memory(0).control().size();

  for (int i = 0; i < 3; ++i) exchange_all_sizes(ranks, there, here);

  EXPECT_EQ(test::allocations_of_this_thread(), before);
  EXPECT_EQ(ranks.memory(0).control().size(), memory_before);
}

TEST(ShmLinkTest, RingsAPeerThatSleepsAndNoOther) {
  ShmLinks ranks(3);
  (void)ranks.link(1);
  auto& awake = ranks.memory(1).header();
  auto& asleep = ranks.memory(2).header();
  asleep.asleep.store(1, std::memory_order_relaxed);
  const std::array<std::byte, 8> token{};
  std::array<Transfer, 2> sends;

  ranks.link(0).post_send(1, 1, token, sends[0]);
  ranks.link(0).post_send(2, 1, token, sends[1]);

  EXPECT_EQ(awake.doorbell.load(), 0U);
  EXPECT_EQ(asleep.doorbell.load(), 1U);
}

TEST(ShmLinkTest, RingsASenderThatSleepsUntilThereAreFreeSlots) {
  ShmLinks ranks(2);
  std::deque<Transfer> sends(ring_slots + 1);
  for (Transfer& send : sends) ranks.link(0).post_send(1, 1, {}, send);
  auto& header = ranks.memory(0).header();
  header.asleep.store(1, std::memory_order_relaxed);
  Transfer receive;

  ranks.link(1).post_recv(0, 1, {}, receive);
  ranks.link(1).progress();

  EXPECT_EQ(header.doorbell.load(), 1U);
}

// A receive of another tag is posted all the time, so that the ring must be read on and on.
TEST(ShmLinkTest, BoundsWhatAFloodOfMessagesThatNobodyAsksForTakes) {
  constexpr std::size_t messages = 20'000;
  constexpr std::size_t most_copied = 17'000;
  ShmLinks ranks(2);
  Transfer awaited;
  std::array<std::byte, 3> wanted{};
  ranks.link(1).post_recv(0, 1, wanted, awaited);

  std::vector<std::uint32_t> sent(messages);
  std::deque<Transfer> sends(messages);
  for (std::uint32_t i = 0; i < messages; ++i) {
    sent[i] = i;
    ranks.link(0).post_send(1, 2, std::as_bytes(std::span(sent).subspan(i, 1)), sends[i]);
    if (i % ring_slots == 0) ranks.settle();
  }
  ranks.settle();
  const auto done = [](const Transfer& transfer) { return transfer.done(); };

  // The others stay with their sender, and nothing is lost or overtaken.
  EXPECT_LT(std::ranges::count_if(sends, done), most_copied);
  const auto data = filled(3, 1);
  Transfer last;
  ranks.link(0).post_send(1, 1, data, last);
  ranks.settle();
  EXPECT_TRUE(awaited.done());
  EXPECT_TRUE(is_filled(wanted, 1));
  for (std::uint32_t i = 0; i < messages; ++i) {
    Transfer receive;
    std::uint32_t received = messages;
    ranks.link(1).post_recv(0, 2, std::as_writable_bytes(std::span(&received, 1)), receive);
    while (receive.pending()) ranks.settle();
    ASSERT_EQ(received, i);
  }
  ranks.settle();
  EXPECT_TRUE(std::ranges::all_of(sends, done));
  EXPECT_TRUE(last.done());
}

TEST(ShmLinkTest, CopiesSmallMessagesAgainWhenAFloodIsOver) {
  constexpr std::size_t messages = 17'000;
  ShmLinks ranks(2);
  const std::array<std::byte, 1> data{};
  std::array<std::byte, 1> received{};
  Transfer awaited;
  ranks.link(1).post_recv(0, 1, received, awaited);
  std::deque<Transfer> sends(messages);
  for (Transfer& send : sends) {
    ranks.link(0).post_send(1, 2, data, send);
    ranks.settle();
  }
  ASSERT_TRUE(sends.back().pending());
  for (std::size_t i = 0; i < messages; ++i) {
    Transfer receive;
    ranks.link(1).post_recv(0, 2, received, receive);
    while (receive.pending()) ranks.settle();
  }

  Transfer after;
  ranks.link(0).post_send(1, 1, data, after);

  EXPECT_TRUE(after.done());
  ranks.settle();
  EXPECT_TRUE(awaited.done());
}

TEST(ShmLinkTest, BoundsWhatAFloodOfMessagesToOneselfTakes) {
  constexpr std::size_t messages = 20'000;
  constexpr std::size_t most_copied = 17'000;
  ShmLinks ranks(1);
  const std::array<std::byte, 1> data{};
  std::deque<Transfer> sends(messages);
  for (Transfer& send : sends) ranks.link(0).post_send(0, 2, data, send);
  const auto done = [](const Transfer& transfer) { return transfer.done(); };

  EXPECT_LT(std::ranges::count_if(sends, done), most_copied);
  for (std::size_t i = 0; i < messages; ++i) {
    std::array<std::byte, 1> received{};
    Transfer receive;
    ranks.link(0).post_recv(0, 2, received, receive);
    ASSERT_TRUE(receive.done());
  }
  EXPECT_TRUE(std::ranges::all_of(sends, done));
}

}  // namespace
}  // namespace rondo::transport::shm_link_test
