#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include <rondo/sync/export.hpp>

namespace rondo::sync {

/// Collects the state of one object as bytes, for the ByteReader of the same name and version.
///
/// A stream is: the name's length and characters, the version, then values in the order written,
/// each as it lies in memory; an array is preceded by its count. A stream may hold others as
/// arrays of bytes.
class RONDO_SYNC_API ByteWriter {
 public:
  ByteWriter(std::string_view name, std::uint32_t version);

  template <typename T>
    requires std::is_arithmetic_v<T>
  void put(T value) {
    append(std::as_bytes(std::span<const T>(&value, 1)));
  }

  template <typename T>
    requires std::is_trivially_copyable_v<T>
  void put_array(std::span<const T> values) {
    put(static_cast<std::uint64_t>(values.size()));
    append(std::as_bytes(values));
  }

  /// What was written; the writer is spent.
  [[nodiscard]] std::vector<std::byte> take() noexcept { return std::move(bytes_); }

 private:
  void append(std::span<const std::byte> bytes);

  std::vector<std::byte> bytes_;
};

/// Reads back what a ByteWriter of the same name and version wrote.
///
/// Everything that does not fit throws std::invalid_argument, whose text begins with the name.
class RONDO_SYNC_API ByteReader {
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

  /// Throws for a reason of the caller's own: what was read does not fit.
  [[noreturn]] void fail(const std::string& problem) const;

 private:
  void copy(std::span<std::byte> into);
  void expect_count(std::size_t expected);

  std::span<const std::byte> rest_;
  std::string name_;
};

}  // namespace rondo::sync
