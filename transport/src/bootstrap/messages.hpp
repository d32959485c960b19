#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "bootstrap/frame.hpp"
#include "bootstrap/side_channel.hpp"

namespace rondo::transport::rendezvous {

// What ranks and store say once they trust each other. Decoding gives nothing for a payload that
// encoding cannot have made.

/// A rank's part of round `round` of allgather.
struct Blob {
  std::uint64_t round = 0;
  std::string bytes = {};
};

/// All parts, in rank order.
struct Blobs {
  std::uint64_t round = 0;
  std::vector<std::string> parts = {};
};

[[nodiscard]] Frame encode(const Blob& blob);
[[nodiscard]] Frame encode(const Blobs& blobs);
[[nodiscard]] Frame encode(const News& news);

[[nodiscard]] std::optional<Blob> decode_blob(std::string_view payload);
[[nodiscard]] std::optional<Blobs> decode_blobs(std::string_view payload);
[[nodiscard]] std::optional<News> decode_news(std::string_view payload);

/// Text that came from outside, fit for an error message: printable, at most 500 bytes.
[[nodiscard]] std::string printable(std::string_view text);

}  // namespace rondo::transport::rendezvous
