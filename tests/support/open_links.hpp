#pragma once

// Links of several ranks, all moved by the test's one thread, so that what happens is in its hands.

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <ranges>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "links/plugin.hpp"
#include "message/link.hpp"

namespace rondo::test {

using Bytes = std::vector<std::byte>;

/// Bytes that tell `seed` and their place.
inline Bytes pattern(std::size_t bytes, std::uint32_t seed = 1) {
  Bytes data(bytes);
  for (std::byte& byte : data) {
    seed = seed * 1'664'525U + 1'013'904'223U;
    byte = static_cast<std::byte>(seed >> 24U);
  }
  return data;
}

class OpenLinks {
 public:
  using All = std::vector<std::unique_ptr<transport::Link>>;

  OpenLinks() = default;
  explicit OpenLinks(All links) : links_(std::move(links)) {}
  /// A plug-in's links of so many ranks, each connected to each.
  OpenLinks(const std::string& plugin, const std::string& provider, const std::string& device,
            int size) {
    for (int rank = 0; rank < size; ++rank) {
      links_.push_back(transport::open_plugin(
          plugin,
          {.rank = rank, .size = size, .provider = provider, .device = device, .peers = size - 1}));
    }
    connect();
  }

  [[nodiscard]] transport::Link& link(int rank) { return *links_[static_cast<std::size_t>(rank)]; }
  [[nodiscard]] int size() const { return static_cast<int>(links_.size()); }
  void close(int rank) { links_[static_cast<std::size_t>(rank)].reset(); }

  /// Makes all ranks known to all others.
  void connect() {
    for (int rank = 0; rank < size(); ++rank) {
      for (int peer = 0; peer < size(); ++peer) {
        if (peer != rank) link(rank).connect(peer, link(peer).address());
      }
    }
  }

  bool progress_all() {
    bool moved = false;
    for (const auto& link : links_) moved = (link && link->progress()) || moved;
    return moved;
  }
  /// So many times.
  void progress(int times) {
    for (int i = 0; i < times; ++i) progress_all();
  }
  /// False when that takes longer than anything that is right.
  template <typename Condition>
  bool progress_until(Condition is_met) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (!is_met()) {
      progress_all();
      if (std::chrono::steady_clock::now() > end) return false;
    }
    return true;
  }
  /// Until none of them is pending.
  template <typename... Transfers>
  bool finish(const Transfers&... transfers) {
    return progress_until([&] { return (has_ended(transfers) && ...); });
  }

  [[nodiscard]] Bytes receive(int at, int from, std::uint64_t tag, std::size_t bytes) {
    Bytes data(bytes);
    transport::Transfer receiving;
    link(at).post_recv(from, tag, data, receiving);
    EXPECT_TRUE(finish(receiving) && receiving.done()) << link(at).error_text(receiving);
    return data;
  }
  void exchange(int from, int to, std::uint64_t tag, const Bytes& data) {
    transport::Transfer sending;
    link(from).post_send(to, tag, data, sending);
    EXPECT_EQ(receive(to, from, tag, data.size()), data);
    EXPECT_TRUE(finish(sending) && sending.done()) << link(from).error_text(sending);
  }

 private:
  static bool has_ended(const transport::Transfer& transfer) { return !transfer.pending(); }
  template <std::ranges::range Transfers>
  static bool has_ended(const Transfers& transfers) {
    return std::ranges::none_of(transfers, &transport::Transfer::pending);
  }

  All links_;
};

}  // namespace rondo::test
