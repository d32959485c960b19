#pragma once

// Two ranks joined by the link over TCP, and the connections that this process has.

#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "links/plugin.hpp"
#include "message/link.hpp"

namespace rondo::transport::tcp_test {

using Bytes = std::vector<std::byte>;

inline std::unique_ptr<Link> open_tcp(int rank, int size, const std::string& device = "lo",
                                      const std::string& provider = "") {
  return open_plugin("tcp", {.rank = rank, .size = size, .provider = provider, .device = device});
}

inline Bytes pattern(std::size_t bytes, unsigned seed) {
  Bytes data(bytes);
  for (std::byte& byte : data)
    byte = static_cast<std::byte>((seed = seed * 1'664'525U + 1U) >> 24U);
  return data;
}

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

// Two ranks, driven by the test's own thread.
class TcpPairTest : public testing::Test {
 protected:
  TcpPairTest() {
    for (int rank = 0; rank < 2; ++rank) links_.push_back(open_tcp(rank, 2));
    links_[0]->connect(1, links_[1]->address());
    links_[1]->connect(0, links_[0]->address());
  }

  Link& link(int rank) { return *links_[static_cast<std::size_t>(rank)]; }
  void close(int rank) { links_[static_cast<std::size_t>(rank)].reset(); }

  void progress_all() {
    for (const auto& link : links_) {
      if (link) link->progress();
    }
  }
  bool finish(const Transfer& transfer) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (transfer.pending() && std::chrono::steady_clock::now() < end) progress_all();
    return !transfer.pending();
  }
  void exchange(int from, int to, std::uint64_t tag, const Bytes& data) {
    Transfer sending;
    link(from).post_send(to, tag, data, sending);
    EXPECT_EQ(receive(to, from, tag, data.size()), data);
    EXPECT_TRUE(finish(sending) && sending.done()) << link(from).error_text(sending);
  }
  Bytes receive(int at, int from, std::uint64_t tag, std::size_t bytes) {
    Bytes data(bytes);
    Transfer receiving;
    link(at).post_recv(from, tag, data, receiving);
    EXPECT_TRUE(finish(receiving) && receiving.done()) << link(at).error_text(receiving);
    return data;
  }

 private:
  std::vector<std::unique_ptr<Link>> links_;
};

}  // namespace rondo::transport::tcp_test
