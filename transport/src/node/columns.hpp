#pragma once

#include <cstddef>

#include "collective/operation.hpp"
#include "node/rows.hpp"
#include "node/slices.hpp"
#include "reduce/reduce.hpp"

namespace rondo::transport {

/// Of a block whose rows hold the shares of all ranks side by side, those of `member`.
template <typename AnyBlock>
[[nodiscard]] AnyBlock column_of(AnyBlock block, const Posted& posted,
                                 std::size_t member) noexcept {
  std::size_t before = 0;
  for (std::size_t r = 0; r < member; ++r) before += posted.share_row_bytes(r);
  if (block.data != nullptr) block.data += before;  // null: no rows
  block.row_bytes = posted.share_row_bytes(member);
  return block;
}

/// Reduces bytes `range` of this rank's columns, source_of(r) being those of member r, into the
/// same bytes of the output.
template <typename SourceOf>
void reduce_columns(Group& group, const Posted& posted, Reduction reduce, Range range,
                    SourceOf source_of) {
  const Block& output = posted.output;
  const std::size_t run = output.rows <= 1 ? output.bytes() : output.row_bytes;
  const std::size_t element_bytes = size_of(posted.fingerprint.type);
  for_each_run(run, range.begin, range.size(),
               [&](std::size_t row, std::size_t column, std::size_t, std::size_t length) {
                 for (std::size_t r = 0; r < group.count(); ++r) {
                   const ConstBlock source = source_of(r);
                   group.sources[r] = source.data + row * source.stride_bytes + column;
                 }
                 std::byte* const into = output.data + row * output.stride_bytes + column;
                 reduce(group.sources.data(), group.count(), &into, 1, 0, length / element_bytes);
               });
}

}  // namespace rondo::transport
