#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "memory/control_block.hpp"
#include "message/link.hpp"

namespace rondo::transport {

/// A rank of a group that spans nodes sends one to the next rank for each operation.
struct Header {
  std::uint64_t sequence = 0;
  shm::Fingerprint fingerprint = {};
};

/// The exchange of headers for one operation: this rank's goes to the next member of its group,
/// and that of the previous member is compared with it.
///
/// A header carries the first message that the operation sends to the next member, if it is short:
/// two ranks exchange one message each for a short allreduce. On the other side the first short
/// receive from the previous member is kept back until its header is there; then it either has the
/// data or is posted as any other. Both sides decide by the length alone, so this is for operations
/// whose ranks know what they are sent. Lives in the operation's record.
class HeaderExchange {
 public:
  /// Longer messages travel by themselves: copying them would take longer than it saves.
  static constexpr std::size_t most_carried = 4096;

  enum class Carrying : std::uint8_t { allowed, refused };

  /// A receive that waits for the header of the previous member.
  struct Held {
    std::uint64_t tag = 0;
    std::span<std::byte> into = {};
    Transfer* transfer = nullptr;
  };

  /// A new operation. Nothing of the last one may be under way.
  void begin(const Header& header, Carrying carrying) noexcept {
    mine_.header = header;
    mine_.bytes = nothing;
    may_carry_ = may_hold_ = carrying == Carrying::allowed;
    held_ = {};
    has_left_ = compared_ = false;
    sent.state = received.state = TransferState::idle;
  }

  /// Takes the message along; then `transfer` is done. False for all but the first, or if it is
  /// too long.
  [[nodiscard]] bool carry(std::uint64_t tag, std::span<const std::byte> data,
                           Transfer& transfer) noexcept {
    const bool fits = may_carry_ && data.size() <= most_carried;
    may_carry_ = false;
    if (!fits) return false;
    mine_.tag = tag;
    mine_.bytes = static_cast<std::uint32_t>(data.size());
    if (!data.empty()) std::memcpy(mine_.data.data(), data.data(), data.size());
    transfer.begin(nullptr);
    transfer.end(0, data.size());
    return true;
  }
  /// Keeps the receive back, or ends it if its message has come with the header. False for all but
  /// the first, or if it is too long, or if its message comes by itself.
  [[nodiscard]] bool hold(std::uint64_t tag, std::span<std::byte> into,
                          Transfer& transfer) noexcept {
    const bool fits = may_hold_ && into.size() <= most_carried;
    may_hold_ = false;
    if (!fits || (compared_ && !brings(tag))) return false;
    transfer.begin(nullptr);
    held_ = {.tag = tag, .into = into, .transfer = &transfer};
    if (compared_) end_held();
    return true;
  }
  /// True when `transfer` is the receive that is kept back: it is given up.
  [[nodiscard]] bool forget(Transfer& transfer) noexcept {
    if (held_.transfer != &transfer) return false;
    held_ = {};
    transfer.state = TransferState::idle;
    return true;
  }

  /// The header of the previous member is there, and equal. Returns the receive that is to be
  /// posted now, if any: its message comes by itself.
  [[nodiscard]] Held note_compared() noexcept {
    compared_ = true;
    if (held_.transfer == nullptr) return {};
    if (brings(held_.tag)) {
      end_held();
      return {};
    }
    const Held held = held_;
    held_ = {};
    return held;
  }

  /// The message to send; from now on nothing more is carried.
  [[nodiscard]] std::span<const std::byte> leave() noexcept {
    has_left_ = true;
    may_carry_ = false;
    const std::size_t carried = mine_.bytes == nothing ? 0 : mine_.bytes;
    return std::as_bytes(std::span(&mine_, 1)).first(offsetof(Packet, data) + carried);
  }
  [[nodiscard]] bool has_left() const noexcept { return has_left_; }
  /// Where the previous member's message is received.
  [[nodiscard]] std::span<std::byte> place() noexcept {
    return std::as_writable_bytes(std::span(&theirs_, 1));
  }
  [[nodiscard]] std::uint64_t sequence() const noexcept { return mine_.header.sequence; }
  /// The received header.
  [[nodiscard]] const Header& theirs() const noexcept { return theirs_.header; }
  [[nodiscard]] bool compared() const noexcept { return compared_; }

  Transfer sent;
  Transfer received;

 private:
  static constexpr std::uint32_t nothing = 0xFFFF'FFFF;

  struct Packet {
    Header header = {};
    std::uint64_t tag = 0;          // of the message that is carried
    std::uint32_t bytes = nothing;  // of its data
    std::array<std::byte, most_carried> data;
  };

  [[nodiscard]] bool brings(std::uint64_t tag) const noexcept {
    return theirs_.bytes != nothing && theirs_.tag == tag;
  }
  void end_held() noexcept {
    const std::size_t bytes = theirs_.bytes;
    const bool fits = bytes <= held_.into.size();
    if (fits && bytes > 0) std::memcpy(held_.into.data(), theirs_.data.data(), bytes);
    held_.transfer->end(fits ? 0 : Transfer::truncated, bytes);
    held_ = {};
  }

  Packet mine_;
  Packet theirs_;
  bool may_carry_ = false;
  bool may_hold_ = false;
  bool has_left_ = false;
  bool compared_ = false;
  Held held_ = {};
};

}  // namespace rondo::transport
