#include "collective/rows.hpp"

#include <algorithm>
#include <cstring>

namespace rondo::transport {
namespace {

// Calls piece(offset in the block's memory, offset in the range, bytes) for each run of bytes.
template <typename AnyBlock, typename Piece>
void for_each_run(const AnyBlock& block, std::size_t begin, std::size_t bytes, Piece piece) {
  if (bytes == 0) return;
  if (block.dense()) {
    piece(begin, std::size_t{0}, bytes);
    return;
  }
  std::size_t row = begin / block.row_bytes;
  std::size_t column = begin % block.row_bytes;
  for (std::size_t done = 0; done < bytes; ++row, column = 0) {
    const std::size_t length = std::min(block.row_bytes - column, bytes - done);
    piece(row * block.stride_bytes + column, done, length);
    done += length;
  }
}

}  // namespace

void copy_into_rows(const Block& block, std::size_t begin, const std::byte* from,
                    std::size_t bytes) noexcept {
  for_each_run(block, begin, bytes, [&](std::size_t at, std::size_t done, std::size_t length) {
    std::memcpy(block.data + at, from + done, length);
  });
}

void copy_from_rows(std::byte* into, const ConstBlock& block, std::size_t begin,
                    std::size_t bytes) noexcept {
  for_each_run(block, begin, bytes, [&](std::size_t at, std::size_t done, std::size_t length) {
    std::memcpy(into + done, block.data + at, length);
  });
}

void copy_rows(const Block& into, const ConstBlock& from, std::size_t first,
               std::size_t last) noexcept {
  if (into.row_bytes == 0) return;
  for (std::size_t row = first; row < last; ++row) {
    std::byte* to = into.data + row * into.stride_bytes;
    const std::byte* source = from.data + row * from.stride_bytes;
    if (to != source) std::memmove(to, source, into.row_bytes);
  }
}

}  // namespace rondo::transport
