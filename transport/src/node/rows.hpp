#pragma once

#include <algorithm>
#include <cstddef>

#include <rondo/transport/block.hpp>

#include "node/slices.hpp"

namespace rondo::transport {

// A block's bytes are numbered row by row, gaps left out. These work on such a range.

/// The bytes [begin, begin + bytes) of a block whose rows have no gaps between them, as one row.
template <typename AnyBlock>
[[nodiscard]] AnyBlock part_of(AnyBlock block, std::size_t begin, std::size_t bytes) noexcept {
  if (begin > 0) block.data += begin;
  block.rows = 1;
  block.row_bytes = block.stride_bytes = bytes;
  return block;
}

/// The same for a range of bytes.
template <typename AnyBlock>
[[nodiscard]] AnyBlock part_of(AnyBlock block, const Range& range) noexcept {
  return part_of(block, range.begin, range.size());
}

/// Calls piece(row, column, offset in the range, bytes) for each row's part of
/// [begin, begin + bytes), where rows have `row_bytes` bytes.
template <typename Piece>
void for_each_run(std::size_t row_bytes, std::size_t begin, std::size_t bytes, Piece piece) {
  if (bytes == 0) return;
  std::size_t row = begin / row_bytes;
  std::size_t column = begin % row_bytes;
  for (std::size_t done = 0; done < bytes; ++row, column = 0) {
    const std::size_t length = std::min(row_bytes - column, bytes - done);
    piece(row, column, done, length);
    done += length;
  }
}

/// block[begin, begin + bytes) from dense memory.
void copy_into_rows(const Block& block, std::size_t begin, const std::byte* from,
                    std::size_t bytes) noexcept;

/// Dense memory from block[begin, begin + bytes).
void copy_from_rows(std::byte* into, const ConstBlock& block, std::size_t begin,
                    std::size_t bytes) noexcept;

/// into[begin, begin + bytes) from the same bytes of `from`, unless they are the same memory;
/// both have the same rows and row_bytes.
void copy_rows(const Block& into, const ConstBlock& from, std::size_t begin,
               std::size_t bytes) noexcept;

}  // namespace rondo::transport
