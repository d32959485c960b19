#pragma once

#include <cstddef>
#include <span>

#include <rondo/transport/element.hpp>

namespace rondo::transport {

/// Rows of equal length at equal distances in memory: `rows` rows of `row` elements each, the
/// starts of consecutive rows `stride` elements apart.
///
/// A channel slice of an NHWC tensor is one: a row per pixel. A plain array is a single row.
/// Not owning; `first` may be null when there are no elements.
template <typename T>
struct Strided {
  T* first = nullptr;
  std::size_t rows = 0;
  std::size_t row = 0;
  std::size_t stride = 0;

  Strided() = default;
  Strided(T* first_element, std::size_t row_count, std::size_t row_elements,
          std::size_t row_stride) noexcept
      : first(first_element), rows(row_count), row(row_elements), stride(row_stride) {}
  // NOLINTNEXTLINE(google-explicit-constructor): a span is the one-row case.
  Strided(std::span<T> array) noexcept
      : first(array.data()), rows(1), row(array.size()), stride(array.size()) {}

  [[nodiscard]] std::size_t size() const noexcept { return rows * row; }
};

/// Strided without its C++ type; lengths are in bytes.
struct Block {
  std::byte* data = nullptr;
  ElementType type = ElementType::u8;
  std::size_t rows = 0;
  std::size_t row_bytes = 0;
  std::size_t stride_bytes = 0;

  [[nodiscard]] std::size_t bytes() const noexcept { return rows * row_bytes; }
  [[nodiscard]] bool dense() const noexcept { return rows <= 1 || row_bytes == stride_bytes; }
};

/// A Block that is only read.
struct ConstBlock {
  const std::byte* data = nullptr;
  ElementType type = ElementType::u8;
  std::size_t rows = 0;
  std::size_t row_bytes = 0;
  std::size_t stride_bytes = 0;

  [[nodiscard]] std::size_t bytes() const noexcept { return rows * row_bytes; }
  [[nodiscard]] bool dense() const noexcept { return rows <= 1 || row_bytes == stride_bytes; }
};

/// The same rows, to be read.
[[nodiscard]] inline ConstBlock as_const_block(const Block& block) noexcept {
  return {block.data, block.type, block.rows, block.row_bytes, block.stride_bytes};
}

template <Element T>
[[nodiscard]] Block as_block(Strided<T> view) noexcept {
  return {reinterpret_cast<std::byte*>(view.first), type_of<T>(), view.rows, view.row * sizeof(T),
          view.stride * sizeof(T)};
}

template <Element T>
[[nodiscard]] ConstBlock as_const_block(Strided<const T> view) noexcept {
  return {reinterpret_cast<const std::byte*>(view.first), type_of<T>(), view.rows,
          view.row * sizeof(T), view.stride * sizeof(T)};
}

/// One partner of a Communicator::sendrecv(): what is sent to it, and where its message goes.
///
/// Rows may lie apart in memory, so the columns and corners of an image are blocks like any
/// other. Both sides pass as many bytes, in rows of any length. An empty block on one side is
/// matched by an empty one on the other. Tags tell several exchanges between the same two ranks
/// apart: what is sent with `out_tag` is received where `in_tag` is equal.
struct Neighbour {
  int rank = 0;
  ConstBlock out = {};
  Block in = {};
  int out_tag = 0;
  int in_tag = 0;

  Neighbour() = default;

  template <Element T>
  Neighbour(int partner, Strided<const T> sent, Strided<T> received, int sent_tag = 0,
            int received_tag = 0) noexcept
      : rank(partner),
        out(as_const_block(sent)),
        in(as_block(received)),
        out_tag(sent_tag),
        in_tag(received_tag) {}
};

}  // namespace rondo::transport
