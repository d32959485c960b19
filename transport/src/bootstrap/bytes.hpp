#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace rondo::transport::rendezvous {

// Payloads are numbers in little-endian order, and strings behind their 32-bit length.

template <std::unsigned_integral Number>
void append_number(std::string& bytes, Number number) {
  for (std::size_t i = 0; i < sizeof number; ++i) {
    bytes += static_cast<char>(static_cast<std::uint64_t>(number) >> (8 * i) & 0xFFU);
  }
}

inline void append_string(std::string& bytes, std::string_view text) {
  append_number(bytes, static_cast<std::uint32_t>(text.size()));
  bytes += text;
}

/// Reads what was appended. Reading beyond the end gives zeros and empty strings, and all_read()
/// stays false.
class ByteReader {
 public:
  explicit ByteReader(std::string_view bytes) : rest_(bytes) {}

  template <std::unsigned_integral Number>
  [[nodiscard]] Number number() {
    std::uint64_t number = 0;
    const std::string_view raw = take(sizeof(Number));
    for (std::size_t i = 0; i < raw.size(); ++i) {
      number |= std::uint64_t{static_cast<unsigned char>(raw[i])} << (8 * i);
    }
    return static_cast<Number>(number);
  }

  [[nodiscard]] std::string_view string() { return take(number<std::uint32_t>()); }

  /// Everything was there, and nothing is left over.
  [[nodiscard]] bool all_read() const noexcept { return !overrun_ && rest_.empty(); }
  [[nodiscard]] std::size_t left() const noexcept { return rest_.size(); }

 private:
  std::string_view take(std::size_t count) {
    if (count > rest_.size()) {
      overrun_ = true;
      rest_ = {};
      return {};
    }
    const std::string_view taken = rest_.substr(0, count);
    rest_.remove_prefix(count);
    return taken;
  }

  std::string_view rest_;
  bool overrun_ = false;
};

}  // namespace rondo::transport::rendezvous
