#pragma once

// The base of the suite for all links (link_suite.cpp).

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <ostream>
#include <span>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "message/link.hpp"

namespace rondo::transport {

struct LinkBackend {
  std::string name;
  /// Links of so many ranks, each connected to each.
  std::function<std::vector<std::unique_ptr<Link>>(int size)> open;
  bool arms = true;             ///< arm() can give a descriptor
  bool notices_closing = true;  ///< a receive from a peer that closes its link fails by itself

  friend void PrintTo(const LinkBackend& backend, std::ostream* out) { *out << backend.name; }
};

// A test drives all ranks' links from its one thread, so that what happens is in its hands.
class LinkTest : public testing::TestWithParam<LinkBackend> {
 protected:
  using Clock = std::chrono::steady_clock;
  static constexpr std::chrono::seconds patience{20};  // only a test that fails waits so long

  void open(int size) { links_ = GetParam().open(size); }
  Link& link(int rank) { return *links_[static_cast<std::size_t>(rank)]; }
  void close(int rank) { links_[static_cast<std::size_t>(rank)].reset(); }

  bool progress_all() {
    bool moved = false;
    for (const auto& link : links_) {
      if (link) moved = link->progress() || moved;
    }
    return moved;
  }

  template <typename Condition>
  bool progress_until(Condition&& condition) {
    const auto end = Clock::now() + patience;
    while (!condition()) {
      progress_all();
      if (Clock::now() > end) return false;
    }
    return true;
  }
  bool finish(const Transfer& transfer) {
    return progress_until([&transfer] { return !transfer.pending(); });
  }
  bool finish(const std::list<Transfer>& transfers) {
    for (const Transfer& transfer : transfers) {
      if (!finish(transfer)) return false;
    }
    return true;
  }

  // Sends `text` and finishes the send; small messages need no receive for that.
  void send_text(int from, int to, std::uint64_t tag, const std::string& text) {
    Transfer transfer;
    link(from).post_send(to, tag, bytes_of(text), transfer);
    ASSERT_TRUE(finish(transfer)) << text;
    ASSERT_TRUE(transfer.done()) << link(from).error_text(transfer);
  }
  std::string receive_text(int at, int from, std::uint64_t tag) {
    std::string text(64, '?');
    Transfer transfer;
    link(at).post_recv(from, tag, writable_bytes_of(text), transfer);
    EXPECT_TRUE(finish(transfer));
    if (!transfer.done()) return "failed: " + link(at).error_text(transfer);
    text.resize(transfer.bytes);
    return text;
  }

  static std::span<const std::byte> bytes_of(const std::string& text) {
    return std::as_bytes(std::span(text));
  }
  static std::span<std::byte> writable_bytes_of(std::string& text) {
    return std::as_writable_bytes(std::span(text));
  }
  static std::vector<std::byte> pattern(std::size_t bytes, std::uint32_t seed) {
    std::vector<std::byte> data(bytes);
    for (std::byte& byte : data) {
      seed = seed * 1'664'525U + 1'013'904'223U;
      byte = static_cast<std::byte>(seed >> 24U);
    }
    return data;
  }

 private:
  std::vector<std::unique_ptr<Link>> links_;
};

inline std::string link_backend_name(const testing::TestParamInfo<LinkBackend>& info) {
  return info.param.name;
}

}  // namespace rondo::transport
