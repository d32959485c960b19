// The wire that tests of the collectives run over delays and disorders messages on command. How it
// breaks, link_faults_test.cpp shows.

#include "support/memory_link.hpp"

#include <array>
#include <cstddef>
#include <span>

#include <gtest/gtest.h>

namespace rondo::transport::memory_link_test {
namespace {

using test::MemoryFabric;
using test::MemoryScript;

std::span<const std::byte> bytes_of(const int& value) {
  return std::as_bytes(std::span(&value, 1));
}
std::span<std::byte> bytes_of(int& value) { return std::as_writable_bytes(std::span(&value, 1)); }

TEST(MemoryLinkTest, EndsALongSendOnlyWhenItHasBeenReceived) {
  MemoryFabric fabric(2, {.eager_bytes = 3});
  const int sent = 5;
  int received = 0;
  Transfer send;
  Transfer receive;

  fabric.link(0).post_send(1, 0, bytes_of(sent), send);
  fabric.link(0).progress();
  const bool before = send.done();
  fabric.link(1).post_recv(0, 0, bytes_of(received), receive);
  fabric.link(1).progress();
  fabric.link(0).progress();

  EXPECT_FALSE(before);
  EXPECT_TRUE(send.done());
  EXPECT_EQ(received, 5);
}

TEST(MemoryLinkTest, LetsMessagesOvertakeButNotThoseWithTheSameTag) {
  const MemoryScript script{
      .eager_bytes = 64, .delay = [](int, int, std::uint64_t number) { return 2 - int(number); }};
  MemoryFabric fabric(2, script);
  const std::array<int, 3> sent{1, 2, 3};
  std::array<int, 3> received{};
  std::array<Transfer, 3> sends;
  std::array<Transfer, 3> receives;

  fabric.link(0).post_send(1, 0, bytes_of(sent[0]), sends[0]);  // visible after two calls
  fabric.link(0).post_send(1, 0, bytes_of(sent[1]), sends[1]);  // after one, but behind the first
  fabric.link(0).post_send(1, 9, bytes_of(sent[2]), sends[2]);  // at once
  fabric.link(1).post_recv(0, 0, bytes_of(received[0]), receives[0]);
  fabric.link(1).post_recv(0, 0, bytes_of(received[1]), receives[1]);
  fabric.link(1).post_recv(0, 9, bytes_of(received[2]), receives[2]);
  fabric.link(1).progress();
  const std::array<int, 3> early = received;
  fabric.link(1).progress();

  EXPECT_EQ(early, (std::array{0, 0, 3}));
  EXPECT_EQ(received, (std::array{1, 2, 3}));
}

}  // namespace
}  // namespace rondo::transport::memory_link_test
