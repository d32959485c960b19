// The link over TCP sockets keeps little of messages that nobody awaits, that are cancelled or that
// are discarded.

#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "links/plugin.hpp"
#include "message/link.hpp"
#include "support/allocations.hpp"
#include "transport/tcp_fixture.hpp"

namespace rondo::transport::tcp_memory_test {
namespace {

using tcp_test::Bytes;
using tcp_test::for_each_connection;
using tcp_test::pattern;

// The bytes that all connections of this process have sent.
std::uint64_t bytes_sent_by_connections() {
  std::uint64_t sent = 0;
  for_each_connection(
      [&](int /*descriptor*/, const tcp_info& info) { sent += info.tcpi_bytes_sent; });
  return sent;
}

// The kernel then takes much less of a message that nobody reads than the whole.
void make_buffers_small() {
  for_each_connection([](int descriptor, const tcp_info& /*info*/) {
    const int bytes = 128 << 10;
    EXPECT_EQ(::setsockopt(descriptor, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof bytes), 0);
    EXPECT_EQ(::setsockopt(descriptor, SOL_SOCKET, SO_RCVBUF, &bytes, sizeof bytes), 0);
  });
}

class TcpMemoryTest : public tcp_test::TcpPairTest {};

TEST_F(TcpMemoryTest, ReachesWhatLiesBehindALongMessageThatNobodyAwaits) {
  const Bytes early = pattern(3'000'000, 5);
  const Bytes behind = pattern(10, 6);
  Transfer first;
  Transfer second;
  link(0).post_send(1, 1, early, first);
  link(0).post_send(1, 2, behind, second);

  EXPECT_EQ(receive(1, 0, 2, behind.size()), behind);

  EXPECT_TRUE(finish(first) && finish(second));
  EXPECT_EQ(receive(1, 0, 1, early.size()), early);
}

// A message that nobody awaits stays with the kernel, which holds the sender up.
TEST_F(TcpMemoryTest, KeepsNothingOfWhatNobodyAwaits) {
  exchange(0, 1, 1, pattern(10, 1));
  const Bytes data = pattern(std::size_t{64} << 20U, 7);
  Transfer sending;
  link(0).post_send(1, 2, data, sending);

  for (int i = 0; i < 10'000; ++i) progress_all();

  EXPECT_TRUE(sending.pending());
  EXPECT_EQ(receive(1, 0, 2, data.size()), data);
  EXPECT_TRUE(finish(sending) && sending.done());
}

// Rank 0 sends many messages, and rank 1 awaits the last of them.
class TcpFloodTest : public testing::Test {
 protected:
  static constexpr std::uint64_t messages = 20;
  static constexpr std::size_t most = 3000;

  TcpFloodTest() {
    for (int rank = 0; rank < 2; ++rank) {
      LinkOptions options{.rank = rank, .size = 2, .provider = "", .device = "lo"};
      options.most_unexpected = most;
      links.push_back(open_plugin("tcp", options));
    }
    links[0]->connect(1, links[1]->address());
    links[1]->connect(0, links[0]->address());
    links[1]->post_recv(0, messages - 1, last, awaited);
    for (std::uint64_t tag = 0; tag < messages; ++tag) {
      links[0]->post_send(1, tag, data, sends[tag]);
    }
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (links[1]->held_back(0).empty() && awaited.pending() &&
           std::chrono::steady_clock::now() < end) {
      progress_all();
    }
  }
  void progress_all() {
    for (const auto& link : links) link->progress();
  }

  const Bytes data = pattern(1000, 3);
  Bytes last = Bytes(1000);
  std::array<Transfer, messages> sends;
  Transfer awaited;
  std::vector<std::unique_ptr<Link>> links;
};

TEST_F(TcpFloodTest, KeepsNoMoreThanItMayOfWhatNobodyAwaits) {
  for (int i = 0; i < 1'000; ++i) progress_all();

  EXPECT_TRUE(awaited.pending());
  EXPECT_THAT(links[1]->held_back(0), testing::ContainsRegex("take 3[0-9]{3} bytes here"));
}

TEST_F(TcpFloodTest, GoesOnWhenReceivesForItArePosted) {
  for (std::uint64_t tag = 0; tag + 1 < messages; ++tag) {
    Bytes room(data.size());
    Transfer receiving;
    links[1]->post_recv(0, tag, room, receiving);
    while (receiving.pending()) progress_all();
    EXPECT_EQ(room, data);
  }
  while (awaited.pending()) progress_all();

  EXPECT_EQ(last, data);
  EXPECT_EQ(links[1]->held_back(0), "");
}

TEST_F(TcpFloodTest, GoesOnWhenItIsDiscarded) {
  links[1]->discard(0, 0, 0);
  while (awaited.pending()) progress_all();

  EXPECT_EQ(last, data);
}

// The peer gets what the message was, although its memory has been used for something else.
TEST_F(TcpMemoryTest, SendsTheRestOfACancelledMessageFromACopy) {
  exchange(0, 1, 1, pattern(10, 1));
  make_buffers_small();
  const Bytes original = pattern(std::size_t{12} << 20U, 8);
  Bytes data = original;
  Transfer sending;
  link(0).post_send(1, 2, data, sending);
  for (int i = 0; i < 1'000; ++i) progress_all();
  ASSERT_TRUE(sending.pending());

  link(0).cancel(sending);
  std::ranges::fill(data, std::byte{0});

  EXPECT_TRUE(sending.failed());
  EXPECT_EQ(receive(1, 0, 2, original.size()), original);
  exchange(0, 1, 3, pattern(10, 3));
}

// The part that has left already is not copied.
TEST_F(TcpMemoryTest, KeepsOnlyTheRestOfACancelledMessage) {
  exchange(0, 1, 1, pattern(10, 1));
  make_buffers_small();
  const std::size_t half = std::size_t{8} << 20U;
  const Bytes data = pattern(2 * half, 8);
  Bytes room(data.size());
  Transfer sending;
  Transfer receiving;
  link(0).post_send(1, 2, data, sending);
  link(1).post_recv(0, 2, room, receiving);
  while (bytes_sent_by_connections() < half) progress_all();
  ASSERT_TRUE(sending.pending());
  const std::size_t before = test::bytes_allocated_by_this_thread();

  link(0).cancel(sending);

  EXPECT_LE(test::bytes_allocated_by_this_thread() - before, half + (half >> 2U));
  EXPECT_TRUE(finish(receiving) && receiving.done());
  EXPECT_EQ(room, data);
}

TEST_F(TcpMemoryTest, GivesTheConnectionUpRatherThanKeepALongRestOfACancelledMessage) {
  exchange(0, 1, 1, pattern(10, 1));
  make_buffers_small();
  const Bytes data = pattern(std::size_t{64} << 20U, 8);
  Bytes room(10);
  Transfer sending;
  Transfer receiving;
  link(0).post_send(1, 2, data, sending);
  for (int i = 0; i < 1'000; ++i) progress_all();
  ASSERT_TRUE(sending.pending());
  const std::size_t before = test::bytes_allocated_by_this_thread();

  link(0).cancel(sending);
  link(1).post_recv(0, 3, room, receiving);

  EXPECT_TRUE(sending.failed());
  EXPECT_LT(test::bytes_allocated_by_this_thread() - before, std::size_t{1} << 20U);
  EXPECT_TRUE(finish(receiving) && receiving.failed());
}

TEST_F(TcpMemoryTest, DropsTheRestOfAMessageWhoseReceiveWasCancelled) {
  exchange(0, 1, 1, pattern(10, 1));
  const Bytes data = pattern(std::size_t{64} << 20U, 9);
  Bytes room(data.size());
  Transfer sending;
  Transfer receiving;
  link(0).post_send(1, 2, data, sending);
  link(1).post_recv(0, 2, room, receiving);
  for (int i = 0; i < 3; ++i) progress_all();
  ASSERT_TRUE(receiving.pending());

  link(1).cancel(receiving);
  const Bytes then = room;
  exchange(0, 1, 3, pattern(10, 3));

  EXPECT_TRUE(finish(sending) && sending.done());
  EXPECT_EQ(room, then) << "the link wrote into memory that it had given back";
}

TEST_F(TcpMemoryTest, DiscardsWhatHasComeAndWhatComes) {
  constexpr std::uint64_t port = std::uint64_t{5} << 32U;
  constexpr std::uint64_t whole_port = std::uint64_t{0xFFFF} << 32U;
  const Bytes unwanted = pattern(2'000'000, 1);
  Transfer came;
  link(0).post_send(1, port | 1, unwanted, came);
  exchange(0, 1, 9, pattern(10, 2));  // behind it, so that it is kept
  EXPECT_TRUE(finish(came));

  link(1).discard(0, port, whole_port);
  Transfer comes;
  link(0).post_send(1, port | 2, unwanted, comes);
  exchange(0, 1, 9, pattern(10, 4));
  EXPECT_TRUE(finish(comes));

  // The number is in use again.
  Bytes room(10);
  Transfer receiving;
  link(1).post_recv(0, port | 1, room, receiving);
  Transfer again;
  const Bytes data = pattern(10, 5);
  link(0).post_send(1, port | 1, data, again);
  EXPECT_TRUE(finish(receiving) && receiving.done());
  EXPECT_EQ(room, data);
}

}  // namespace
}  // namespace rondo::transport::tcp_memory_test
