#pragma once

#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <vector>

// How structures become bytes that ranks send to each other. One structure has one list of them, a
// static function `fields(self)` that returns std::tie() of its members; it serves both directions.
// Numbers and enumerations are written in little-endian order, strings and vectors behind their
// 32-bit length, arrays without one.

namespace rondo::transport::wire {

template <typename Value>
concept Number = std::integral<Value> || std::is_enum_v<Value>;

template <typename Value>
concept Packable = requires(Value& value) { Value::fields(value); };

template <Number Value>
void append(std::string& bytes, Value value) {
  const auto number = static_cast<std::uint64_t>(value);
  for (std::size_t i = 0; i < sizeof value; ++i) {
    bytes += static_cast<char>(number >> (8 * i) & 0xFFU);
  }
}

inline void append(std::string& bytes, std::string_view text) {
  append(bytes, static_cast<std::uint32_t>(text.size()));
  bytes += text;
}

template <typename Value, std::size_t Size>
void append(std::string& bytes, const std::array<Value, Size>& values);
template <typename Value>
void append(std::string& bytes, const std::vector<Value>& values);

template <Packable Value>
void append(std::string& bytes, const Value& message) {
  std::apply([&](const auto&... fields) { (append(bytes, fields), ...); }, Value::fields(message));
}

template <typename Value, std::size_t Size>
void append(std::string& bytes, const std::array<Value, Size>& values) {
  for (const Value& value : values) append(bytes, value);
}

template <typename Value>
void append(std::string& bytes, const std::vector<Value>& values) {
  append(bytes, static_cast<std::uint32_t>(values.size()));
  for (const Value& value : values) append(bytes, value);
}

/// The fields, one after the other.
template <typename... Fields>
[[nodiscard]] std::string pack(const Fields&... fields) {
  std::string bytes;
  (append(bytes, fields), ...);
  return bytes;
}

/// Reads fields one after the other. Beyond the end it reads zeros and empty strings, and
/// complete() stays false. A claimed length allocates nothing: only bytes that have come are read.
class Unpacker {
 public:
  explicit Unpacker(std::string_view bytes) : rest_(bytes) {}

  template <Number Value>
  void read(Value& value) {
    std::uint64_t number = 0;
    const std::string_view raw = take(sizeof(Value));
    for (std::size_t i = 0; i < raw.size(); ++i) {
      number |= std::uint64_t{static_cast<unsigned char>(raw[i])} << (8 * i);
    }
    value = static_cast<Value>(number);
  }

  /// A view of the bytes that are read.
  void read(std::string_view& text) {
    std::uint32_t size = 0;
    read(size);
    text = take(size);
  }

  void read(std::string& text) {
    std::string_view view;
    read(view);
    text = view;
  }

  template <typename Value, std::size_t Size>
  void read(std::array<Value, Size>& values) {
    for (Value& value : values) read(value);
  }

  template <typename Value>
  void read(std::vector<Value>& values) {
    std::uint32_t size = 0;
    read(size);
    values.clear();
    for (std::uint32_t i = 0; i < size && !overrun_; ++i) read(values.emplace_back());
  }

  template <Packable Value>
  void read(Value& message) {
    std::apply([&](auto&... fields) { (read(fields), ...); }, Value::fields(message));
  }

  /// Everything was there, and nothing is left over.
  [[nodiscard]] bool complete() const noexcept { return !overrun_ && rest_.empty(); }

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

/// Reads what pack() wrote. False when it cannot have written this.
template <typename... Fields>
[[nodiscard]] bool unpack(std::string_view bytes, Fields&... fields) {
  Unpacker unpacker(bytes);
  (unpacker.read(fields), ...);
  return unpacker.complete();
}

}  // namespace rondo::transport::wire
