// The link over TCP sockets keeps little of messages that nobody awaits, that are cancelled or that
// are discarded.

#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "links/plugin.hpp"
#include "message/link.hpp"
#include "support/allocations.hpp"
#include "support/open_links.hpp"

namespace rondo::transport::tcp_memory_test {
namespace {

using test::Bytes;
using test::pattern;

// Calls use(descriptor, what TCP knows of it) for each connection of this process.
template <typename Use>
void for_each_connection(Use use) {
  constexpr int most_descriptors = 1024;
  constexpr int established = 1;
  for (int descriptor = 0; descriptor < most_descriptors; ++descriptor) {
    tcp_info info{};
    socklen_t length = sizeof info;
    if (::getsockopt(descriptor, IPPROTO_TCP, TCP_INFO, &info, &length) != 0) continue;
    if (info.tcpi_state == established) use(descriptor, info);
  }
}

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

class TcpMemoryTest : public testing::Test, protected test::OpenLinks {
 protected:
  TcpMemoryTest() : OpenLinks("tcp", "", "lo", 2) {}
};

TEST_F(TcpMemoryTest, ReachesWhatLiesBehindALongMessageThatNobodyAwaits) {
  const Bytes early = pattern(3'000'000, 5);
  const Bytes behind = pattern(10, 6);
  Transfer first;
  Transfer second;
  link(0).post_send(1, 1, early, first);
  link(0).post_send(1, 2, behind, second);

  EXPECT_EQ(receive(1, 0, 2, behind.size()), behind);

  EXPECT_TRUE(finish(first, second));
  EXPECT_EQ(receive(1, 0, 1, early.size()), early);
}

// A message that nobody awaits stays with the kernel, which holds the sender up.
TEST_F(TcpMemoryTest, KeepsNothingOfWhatNobodyAwaits) {
  exchange(0, 1, 1, pattern(10, 1));
  const Bytes data = pattern(std::size_t{64} << 20U, 7);
  Transfer sending;
  link(0).post_send(1, 2, data, sending);

  progress(10'000);

  EXPECT_TRUE(sending.pending());
  EXPECT_EQ(receive(1, 0, 2, data.size()), data);
  EXPECT_TRUE(finish(sending) && sending.done());
}

// Rank 0 sends many messages, and rank 1 awaits the last of them.
class TcpFloodTest : public testing::Test, protected test::OpenLinks {
 protected:
  static constexpr std::uint64_t messages = 20;

  TcpFloodTest() : OpenLinks(open_all()) {
    connect();
    link(1).post_recv(0, messages - 1, last, awaited);
    for (std::uint64_t tag = 0; tag < messages; ++tag) link(0).post_send(1, tag, data, sends[tag]);
    static_cast<void>(
        progress_until([&] { return !link(1).held_back(0).empty() || !awaited.pending(); }));
  }
  // Before the messages, which they refer to.
  ~TcpFloodTest() override {
    close(0);
    close(1);
  }

  const Bytes data = pattern(1000, 3);
  Bytes last = Bytes(1000);
  std::array<Transfer, messages> sends;
  Transfer awaited;

 private:
  static All open_all() {
    All links;
    for (int rank = 0; rank < 2; ++rank) {
      LinkOptions options{.rank = rank, .size = 2, .provider = "", .device = "lo"};
      options.most_unexpected = 3000;
      links.push_back(open_plugin("tcp", options));
    }
    return links;
  }
};

TEST_F(TcpFloodTest, KeepsNoMoreThanItMayOfWhatNobodyAwaits) {
  progress(1'000);

  EXPECT_TRUE(awaited.pending());
  EXPECT_THAT(link(1).held_back(0), testing::ContainsRegex("take 3[0-9]{3} bytes here"));
}

TEST_F(TcpFloodTest, GoesOnWhenReceivesForItArePosted) {
  for (std::uint64_t tag = 0; tag + 1 < messages; ++tag) {
    Bytes room(data.size());
    Transfer receiving;
    link(1).post_recv(0, tag, room, receiving);
    while (receiving.pending()) progress_all();
    EXPECT_EQ(room, data);
  }
  while (awaited.pending()) progress_all();

  EXPECT_EQ(last, data);
  EXPECT_EQ(link(1).held_back(0), "");
}

TEST_F(TcpFloodTest, GoesOnWhenItIsDiscarded) {
  link(1).discard(0, 0, 0);
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
  progress(1'000);
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
  progress(1'000);
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
  progress(3);
  ASSERT_TRUE(receiving.pending());

  link(1).cancel(receiving);
  const Bytes then = room;
  exchange(0, 1, 3, pattern(10, 3));

  EXPECT_TRUE(finish(sending) && sending.done());
  EXPECT_EQ(room, then) << "the link wrote into memory that it had given back";
}

}  // namespace
}  // namespace rondo::transport::tcp_memory_test
