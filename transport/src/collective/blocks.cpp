// Copies between blocks with gaps between their rows and dense memory. A block without gaps is
// copied as one long row, in a single call.

#include "collective/blocks.hpp"

#include <cstring>

namespace rondo::transport {
namespace {

template <typename AnyBlock>
std::size_t run_bytes(const AnyBlock& block) {
  return block.dense() ? block.bytes() : block.row_bytes;
}

}  // namespace

void copy_into_rows(const Block& block, std::size_t begin, const std::byte* from,
                    std::size_t bytes) noexcept {
  for_each_run(run_bytes(block), begin, bytes,
               [&](std::size_t row, std::size_t column, std::size_t done, std::size_t length) {
                 std::memcpy(block.data + row * block.stride_bytes + column, from + done, length);
               });
}

void copy_from_rows(std::byte* into, const ConstBlock& block, std::size_t begin,
                    std::size_t bytes) noexcept {
  for_each_run(run_bytes(block), begin, bytes,
               [&](std::size_t row, std::size_t column, std::size_t done, std::size_t length) {
                 std::memcpy(into + done, block.data + row * block.stride_bytes + column, length);
               });
}

void copy_rows(const Block& into, const ConstBlock& from, std::size_t begin,
               std::size_t bytes) noexcept {
  const std::size_t run = into.dense() && from.dense() ? into.bytes() : into.row_bytes;
  for_each_run(run, begin, bytes,
               [&](std::size_t row, std::size_t column, std::size_t, std::size_t length) {
                 std::byte* to = into.data + row * into.stride_bytes + column;
                 const std::byte* source = from.data + row * from.stride_bytes + column;
                 if (to != source) std::memmove(to, source, length);
               });
}

}  // namespace rondo::transport
