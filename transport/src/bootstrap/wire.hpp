#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include <rondo/transport/error.hpp>

#include "base/pack.hpp"
#include "bootstrap/side_channel.hpp"

// How what ranks say to each other before there are links becomes bytes: frames, and the messages
// of the store.

namespace rondo::transport::bootstrap {

using wire::append;
using wire::pack;
using wire::unpack;
using wire::Unpacker;

/// The ranks that share a node. The first is its leader: it alone exchanges the parts of an
/// allgather with the store, and passes them on.
struct Roster {
  std::uint64_t token = 0;  ///< of this World: where its leaders are found
  std::vector<std::uint32_t> ranks = {};

  static auto fields(auto& self) { return std::tie(self.token, self.ranks); }
  bool operator==(const Roster&) const = default;
};

/// The parts that some ranks of a node give to an allgather.
struct NodeParts {
  struct Part {
    std::uint32_t rank = 0;
    std::string bytes = {};

    static auto fields(auto& self) { return std::tie(self.rank, self.bytes); }
    bool operator==(const Part&) const = default;
  };
  std::uint64_t round = 0;
  std::vector<Part> parts = {};

  static auto fields(auto& self) { return std::tie(self.round, self.parts); }
  bool operator==(const NodeParts&) const = default;
};

/// One message on a connection of the store.
struct Frame {
  enum class Type : std::uint8_t {
    challenge = 1,  ///< store: prove that you know the secret
    answer,         ///< rank: proof, and who I am
    welcome,        ///< store: proof, and who I am
    refused,        ///< store: text; the connection ends
    blob,           ///< rank: its part of an allgather
    blobs,          ///< store: all parts
    failed,         ///< store: text; the bootstrap has failed for every rank
    status,         ///< both: one StatusMessage
    later,          ///< store: text; try again later; the connection ends
    node,           ///< rank: a Blob, the key of its node
    roster,         ///< store: a Roster, the ranks with the same key
    parts,          ///< leader of a node: several of its ranks' parts of an allgather
  };
  static constexpr Type last_type = Type::parts;
  Type type = Type::challenge;
  std::string payload = {};

  bool operator==(const Frame&) const = default;
};

/// The bytes of a frame beside its payload: its length (32 bits) and type.
inline constexpr std::size_t frame_header_bytes = 5;

/// Appends `frame` to what is to be sent.
void append_frame(std::string& bytes, const Frame& frame);

/// A frame as it goes over the wire. However many connections send it, there is one copy.
using SharedFrame = std::shared_ptr<const std::string>;
[[nodiscard]] SharedFrame share(const Frame& frame);

/// Cuts a stream of bytes into frames.
///
/// It holds no more than came: a claimed length allocates nothing. No more should be pushed than
/// there is room() for, which is one frame. Once broken by a payload longer than `cap` or an
/// unknown type it stays so.
class FrameReader {
 public:
  explicit FrameReader(std::size_t cap) : cap_(cap) {}

  /// From now on payloads may have `cap` bytes.
  void allow(std::size_t cap) noexcept { cap_ = cap; }

  /// How many bytes it should be given now.
  [[nodiscard]] std::size_t room() const noexcept;

  void push(std::string_view bytes);

  /// The next whole frame, if there is one.
  [[nodiscard]] std::optional<Frame> next();

  [[nodiscard]] bool broken() const noexcept { return broken_; }

 private:
  std::size_t cap_;
  std::string bytes_;
  std::size_t used_ = 0;
  bool broken_ = false;
};

// The messages of the store. Decoding gives nothing for a payload that encoding cannot have made.

[[nodiscard]] Frame encode(const Blob& blob);
[[nodiscard]] Frame encode(const Blobs& blobs);
[[nodiscard]] Frame encode(const StatusMessage& message);
[[nodiscard]] Frame encode(const Roster& roster);
[[nodiscard]] Frame encode(const NodeParts& parts);

[[nodiscard]] std::optional<Blob> decode_blob(std::string_view payload);
[[nodiscard]] std::optional<Blobs> decode_blobs(std::string_view payload);
[[nodiscard]] std::optional<StatusMessage> decode_status(std::string_view payload);
[[nodiscard]] std::optional<Roster> decode_roster(std::string_view payload);
[[nodiscard]] std::optional<NodeParts> decode_parts(std::string_view payload);

/// Two hexadecimal digits for each byte.
[[nodiscard]] std::string hexadecimal(std::string_view bytes);

/// Text that came from outside, fit for an error message: printable, at most 500 bytes.
[[nodiscard]] std::string printable(std::string_view text);

/// How long one handshake may last, on both sides.
inline constexpr std::chrono::seconds handshake_limit{5};

/// A rank's part of an allgather, and the frame around it.
inline constexpr std::size_t largest_blob = std::size_t{1} << 20U;
inline constexpr std::size_t largest_from_rank = largest_blob + 64;

/// All parts of an allgather together.
inline constexpr std::size_t largest_from_store = std::size_t{1} << 28U;

/// One allgather over `channel`: what all ranks have sent, in rank order. Each must be of a
/// type that pack() takes.
template <typename Card>
std::vector<Card> exchange(SideChannel& channel, const Card& mine) {
  std::vector<Card> cards;
  for (const std::string& bytes : channel.allgather(pack(mine))) {
    if (unpack(bytes, cards.emplace_back())) continue;
    throw Error(Errc::bootstrap_failed,
                "bootstrap: a rank sent something else than its address card; do all ranks run "
                "the same version?");
  }
  return cards;
}

}  // namespace rondo::transport::bootstrap
