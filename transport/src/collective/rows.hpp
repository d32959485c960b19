#pragma once

#include <cstddef>

#include <rondo/transport/block.hpp>

namespace rondo::transport {

// A block's bytes are numbered row by row, gaps left out. These copy such a range.

/// block[begin, begin + bytes) from dense memory.
void copy_into_rows(const Block& block, std::size_t begin, const std::byte* from,
                    std::size_t bytes) noexcept;

/// Dense memory from block[begin, begin + bytes).
void copy_from_rows(std::byte* into, const ConstBlock& block, std::size_t begin,
                    std::size_t bytes) noexcept;

/// `into`'s rows from those of `from`; both have the same rows and row_bytes. Rows [first, last).
void copy_rows(const Block& into, const ConstBlock& from, std::size_t first,
               std::size_t last) noexcept;

}  // namespace rondo::transport
