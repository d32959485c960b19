#pragma once

// The base of the suite for all links (link_suite.cpp).

#include <cstddef>
#include <cstdint>
#include <functional>
#include <ostream>
#include <span>
#include <string>

#include <gtest/gtest.h>

#include "message/link.hpp"
#include "support/open_links.hpp"

namespace rondo::transport {

struct LinkBackend {
  std::string name;
  /// Links of so many ranks, each connected to each.
  std::function<test::OpenLinks(int size)> open;
  bool arms = true;             ///< arm() can give a descriptor
  bool notices_closing = true;  ///< a receive from a peer that closes its link fails by itself
  bool discards = true;         ///< discard() ends sends that nobody will receive

  friend void PrintTo(const LinkBackend& backend, std::ostream* out) { *out << backend.name; }
};

class LinkTest : public testing::TestWithParam<LinkBackend>, protected test::OpenLinks {
 protected:
  // Ends those that were open before it opens others.
  void open(int size) {
    static_cast<OpenLinks&>(*this) = OpenLinks();
    static_cast<OpenLinks&>(*this) = GetParam().open(size);
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
};

inline std::string link_backend_name(const testing::TestParamInfo<LinkBackend>& info) {
  return info.param.name;
}

}  // namespace rondo::transport
