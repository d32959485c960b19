// Frames, and what ranks and the store say in them once they trust each other.
//
// Whatever comes from a socket may have been written by any program, so no length and no type
// is used here before it has been checked; the fuzzer in tests/fuzz feeds this source.

#include "bootstrap/wire.hpp"

#include <utility>

namespace rondo::transport::bootstrap {
namespace {

template <typename Enumeration>
bool lies_between(Enumeration value, Enumeration first, Enumeration last) {
  return value >= first && value <= last;
}

}  // namespace

void append_frame(std::string& bytes, const Frame& frame) {
  append(bytes, static_cast<std::uint32_t>(frame.payload.size()));
  append(bytes, frame.type);
  bytes += frame.payload;
}

SharedFrame share(const Frame& frame) {
  std::string bytes;
  bytes.reserve(frame_header_bytes + frame.payload.size());
  append_frame(bytes, frame);
  return std::make_shared<const std::string>(std::move(bytes));
}

// One frame of the cap at most, so that a peer cannot make this process keep more.
std::size_t FrameReader::room() const noexcept {
  const std::size_t held = bytes_.size() - used_;
  const std::size_t most = frame_header_bytes + cap_;
  return held < most ? most - held : 0;
}

void FrameReader::push(std::string_view bytes) {
  if (!broken_) bytes_ += bytes;
}

std::optional<Frame> FrameReader::next() {
  const std::string_view rest = std::string_view(bytes_).substr(used_);
  if (broken_ || rest.size() < frame_header_bytes) return std::nullopt;
  std::uint32_t length = 0;
  Frame frame;
  Unpacker header(rest);
  header.read(length);
  header.read(frame.type);
  if (length > cap_ || !lies_between(frame.type, Frame::Type::challenge, Frame::last_type)) {
    broken_ = true;
    return std::nullopt;
  }
  if (rest.size() - frame_header_bytes < length) return std::nullopt;
  frame.payload = rest.substr(frame_header_bytes, length);
  used_ += frame_header_bytes + length;
  // Moved down only when at least half is used: bytes are moved once on average.
  if (used_ * 2 >= bytes_.size()) {
    bytes_.erase(0, used_);
    used_ = 0;
  }
  return frame;
}

Frame encode(const Blob& blob) { return {.type = Frame::Type::blob, .payload = pack(blob)}; }

Frame encode(const Blobs& blobs) { return {.type = Frame::Type::blobs, .payload = pack(blobs)}; }

Frame encode(const StatusMessage& message) {
  return {.type = Frame::Type::status, .payload = pack(message)};
}

Frame encode(const Roster& roster) {
  return {.type = Frame::Type::roster, .payload = pack(roster)};
}

Frame encode(const NodeParts& parts) {
  return {.type = Frame::Type::parts, .payload = pack(parts)};
}

std::optional<Blob> decode_blob(std::string_view payload) {
  Blob blob;
  return unpack(payload, blob) ? std::optional(std::move(blob)) : std::nullopt;
}

std::optional<Blobs> decode_blobs(std::string_view payload) {
  Blobs blobs;
  return unpack(payload, blobs) ? std::optional(std::move(blobs)) : std::nullopt;
}

std::optional<StatusMessage> decode_status(std::string_view payload) {
  using Kind = StatusMessage::Kind;
  StatusMessage message;
  if (!unpack(payload, message)) return std::nullopt;
  if (!lies_between(message.kind, Kind::left, Kind::at_fault)) return std::nullopt;
  return message.rank < 0 ? std::nullopt : std::optional(std::move(message));
}

std::optional<Roster> decode_roster(std::string_view payload) {
  Roster roster;
  if (!unpack(payload, roster) || roster.ranks.empty()) return std::nullopt;
  return roster;
}

std::optional<NodeParts> decode_parts(std::string_view payload) {
  NodeParts parts;
  return unpack(payload, parts) ? std::optional(std::move(parts)) : std::nullopt;
}

std::string hexadecimal(std::string_view bytes) {
  constexpr std::string_view digits = "0123456789abcdef";
  std::string text;
  for (const char byte : bytes) {
    const auto value = static_cast<unsigned char>(byte);
    text += digits[value >> 4U];
    text += digits[value & 15U];
  }
  return text;
}

std::string printable(std::string_view text) {
  constexpr std::size_t most = 500;
  std::string clean(text.substr(0, most));
  for (char& c : clean) {
    if (c < ' ' || c > '~') c = '?';
  }
  return clean;
}

}  // namespace rondo::transport::bootstrap
