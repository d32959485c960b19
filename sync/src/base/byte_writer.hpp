#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace rondo::sync {

/// Collects the state of one object as bytes, for the ByteReader of the same name and version.
///
/// A stream is: the name's length and characters, the version, then values in the order written,
/// each as it lies in memory; an array is preceded by its count. A stream may hold others as
/// arrays of bytes.
class ByteWriter {
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

}  // namespace rondo::sync
