#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>

#include <rondo/transport/block.hpp>

#include "collective/algorithms.hpp"
#include "collective/team_work.hpp"
#include "reduce/reduce.hpp"

namespace rondo::transport {

// Parts of blocks: rows, and the columns that hold a rank's share; how they are copied and reduced,
// by a team where they are long. The bytes of a block are numbered row by row, and the gaps between
// rows are left out.

/// From the first byte of a block to its last, gaps included.
[[nodiscard]] inline std::size_t extent_of(const ConstBlock& block) noexcept {
  return block.rows == 0 ? 0 : (block.rows - 1) * block.stride_bytes + block.row_bytes;
}

/// The bytes `range` of a block whose rows have no gaps between them, as one row.
template <typename AnyBlock>
[[nodiscard]] AnyBlock part_of(AnyBlock block, const Range& range) noexcept {
  if (range.begin > 0) block.data += range.begin;
  block.rows = 1;
  block.row_bytes = block.stride_bytes = range.size();
  return block;
}

/// The shares of `member` in a block whose rows hold the shares of all ranks side by side.
template <typename AnyBlock>
[[nodiscard]] AnyBlock column_of(AnyBlock block, const Posted& posted,
                                 std::size_t member) noexcept {
  std::size_t before = 0;
  for (std::size_t r = 0; r < member; ++r) before += posted.share_row_bytes(r);
  if (block.data != nullptr) block.data += before;  // null: no rows
  block.row_bytes = posted.share_row_bytes(member);
  return block;
}

/// Calls visit(row, column, offset in the range, bytes) for each row's part of
/// [begin, begin + bytes), where rows have `row_bytes` bytes.
template <typename Visit>
void for_each_run(std::size_t row_bytes, std::size_t begin, std::size_t bytes, Visit visit) {
  if (bytes == 0) return;
  std::size_t row = begin / row_bytes;
  std::size_t column = begin % row_bytes;
  for (std::size_t done = 0; done < bytes; ++row, column = 0) {
    const std::size_t length = std::min(row_bytes - column, bytes - done);
    visit(row, column, done, length);
    done += length;
  }
}

/// The bytes that one call copies: all of a block without gaps, or else a row.
template <typename AnyBlock>
[[nodiscard]] std::size_t run_bytes(const AnyBlock& block) {
  return block.dense() ? block.bytes() : block.row_bytes;
}

/// Copies dense memory into block[begin, begin + bytes).
inline void copy_into_rows(Team* team, const Block& block, std::size_t begin, const std::byte* from,
                           std::size_t bytes) {
  for_parts(team, bytes, [&](const TeamPart& part) {
    for_each_run(run_bytes(block), begin + part.begin, part.size(),
                 [&](std::size_t row, std::size_t column, std::size_t done, std::size_t length) {
                   std::memcpy(block.data + row * block.stride_bytes + column,
                               from + part.begin + done, length);
                 });
  });
}

/// Copies block[begin, begin + bytes) into dense memory.
inline void copy_from_rows(Team* team, std::byte* into, const ConstBlock& block, std::size_t begin,
                           std::size_t bytes) {
  for_parts(team, bytes, [&](const TeamPart& part) {
    for_each_run(run_bytes(block), begin + part.begin, part.size(),
                 [&](std::size_t row, std::size_t column, std::size_t done, std::size_t length) {
                   std::memcpy(into + part.begin + done,
                               block.data + row * block.stride_bytes + column, length);
                 });
  });
}

/// Copies the bytes [begin, begin + bytes) of `from` into the same bytes of `into`, unless they
/// are the same memory. Both have the same rows and row_bytes.
inline void copy_rows(Team* team, const Block& into, const ConstBlock& from, std::size_t begin,
                      std::size_t bytes) {
  if (into.data == from.data) return;
  const std::size_t run = into.dense() && from.dense() ? into.bytes() : into.row_bytes;
  for_parts(team, bytes, [&](const TeamPart& part) {
    for_each_run(run, begin + part.begin, part.size(),
                 [&](std::size_t row, std::size_t column, std::size_t, std::size_t length) {
                   std::memcpy(into.data + row * into.stride_bytes + column,
                               from.data + row * from.stride_bytes + column, length);
                 });
  });
}

/// Reduces bytes `range` of this rank's columns, source_of(r) being those of member r, into the
/// same bytes of the output.
template <typename SourceOf>
void reduce_columns(Group& group, const Posted& posted, Reduction reduce, Range range,
                    SourceOf source_of) {
  const Block& output = posted.output;
  const std::size_t run = output.rows <= 1 ? output.bytes() : output.row_bytes;
  const std::size_t element_bytes = size_of(posted.fingerprint.type);
  for_parts(group.team, range.size(), [&](const TeamPart& part) {
    const std::byte** const sources = group.sources.data() + part.thread * group.count();
    for_each_run(run, range.begin + part.begin, part.size(),
                 [&](std::size_t row, std::size_t column, std::size_t, std::size_t length) {
                   for (std::size_t r = 0; r < group.count(); ++r) {
                     const ConstBlock source = source_of(r);
                     sources[r] = source.data + row * source.stride_bytes + column;
                   }
                   std::byte* const into = output.data + row * output.stride_bytes + column;
                   reduce(sources, group.count(), &into, 1, 0, length / element_bytes);
                 });
  });
  group.count_moved((group.count() - 1) * range.size());
}

/// Bytes that one step of an operation over links joins or copies, per thread.
inline constexpr std::size_t joined_bytes = std::size_t{256} << 10U;

/// Copies what an operation only moves from a rank to itself, a part per step.
class OwnCopy {
 public:
  /// Copies some of `from`, which has as many rows and row bytes, into `into`. True if it did;
  /// false when all is there, or they are the same memory.
  bool step(Team* team, const Block& into, const ConstBlock& from) {
    if (copied_ == from.bytes() || into.data == from.data) return false;
    const std::size_t bytes = std::min(threads_of(team) * joined_bytes, from.bytes() - copied_);
    copy_rows(team, into, from, copied_, bytes);
    copied_ += bytes;
    return true;
  }

 private:
  std::size_t copied_ = 0;
};

}  // namespace rondo::transport
