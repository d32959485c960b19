#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace rondo::transport::rendezvous {

/// One message on a connection of the store.
struct Frame {
  enum class Type : std::uint8_t {
    challenge = 1,  ///< store: prove that you know the secret
    answer,         ///< rank: proof, and who I am
    welcome,        ///< store: proof, and who I am
    refused,        ///< store: text; the connection ends
    blob,           ///< rank: its part of an allgather
    blobs,          ///< store: all parts
    failed,         ///< store: text; the rendezvous has failed for every rank
    news,           ///< both: one News
    later,          ///< store: text; there is no place yet, come again; the connection ends
  };
  Type type = Type::challenge;
  std::string payload = {};

  bool operator==(const Frame&) const = default;
};

/// What a frame costs beside its payload: its length (32 bits, little-endian) and type.
inline constexpr std::size_t frame_header_bytes = 5;

/// Appends `frame` to what is to be sent.
void append_frame(std::string& bytes, const Frame& frame);

/// Cuts a stream of bytes into frames.
///
/// It holds no more than came: a claimed length allocates nothing. Nobody should push more than
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

}  // namespace rondo::transport::rendezvous
