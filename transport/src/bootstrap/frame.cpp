#include "bootstrap/frame.hpp"

#include "bootstrap/bytes.hpp"

namespace rondo::transport::rendezvous {
namespace {

bool known(std::uint8_t type) {
  return type >= static_cast<std::uint8_t>(Frame::Type::challenge) &&
         type <= static_cast<std::uint8_t>(Frame::Type::later);
}

}  // namespace

void append_frame(std::string& bytes, const Frame& frame) {
  append_number(bytes, static_cast<std::uint32_t>(frame.payload.size()));
  bytes += static_cast<char>(frame.type);
  bytes += frame.payload;
}

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
  ByteReader header(rest);
  const auto length = header.number<std::uint32_t>();
  const auto type = static_cast<std::uint8_t>(rest[frame_header_bytes - 1]);
  if (length > cap_ || !known(type)) {
    broken_ = true;
    return std::nullopt;
  }
  if (rest.size() - frame_header_bytes < length) return std::nullopt;
  Frame frame{.type = static_cast<Frame::Type>(type),
              .payload = std::string(rest.substr(frame_header_bytes, length))};
  used_ += frame_header_bytes + length;
  // Moved down only when at least half is used: bytes are moved once on average.
  if (used_ * 2 >= bytes_.size()) {
    bytes_.erase(0, used_);
    used_ = 0;
  }
  return frame;
}

}  // namespace rondo::transport::rendezvous
