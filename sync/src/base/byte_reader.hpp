#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>

namespace rondo::sync {

/// Reads back what a ByteWriter of the same name and version wrote.
///
/// Everything that does not fit throws std::invalid_argument, whose text begins with the name.
class ByteReader {
 public:
  ByteReader(std::span<const std::byte> bytes, std::string_view name, std::uint32_t version);

  template <typename T>
    requires std::is_arithmetic_v<T>
  [[nodiscard]] T get() {
    T value{};
    copy(std::as_writable_bytes(std::span<T>(&value, 1)));
    return value;
  }

  /// An array of exactly values.size() elements.
  template <typename T>
    requires std::is_trivially_copyable_v<T>
  void get_array(std::span<T> values) {
    expect_count(values.size());
    copy(std::as_writable_bytes(values));
  }

  /// An array of bytes of any length, as a part of the input.
  [[nodiscard]] std::span<const std::byte> get_bytes();

  /// Throws unless all has been read.
  void expect_end() const;

 private:
  void copy(std::span<std::byte> into);
  void expect_count(std::size_t expected);
  [[noreturn]] void fail(const std::string& problem) const;

  std::span<const std::byte> rest_;
  std::string name_;
};

}  // namespace rondo::sync
