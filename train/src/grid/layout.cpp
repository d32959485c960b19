// Layouts of values, as planner and executor describe them: which block of a value a rank holds
// follows from the rank's replica and its position there. All is arithmetic on small numbers.

#include "grid/layout.hpp"

#include <cstdint>
#include <vector>

namespace rondo::train {
namespace {

// The channel block that a place among `parts` holds; the last place keeps the last block.
int turned_block(int place, int turn, int parts) {
  if (place == parts - 1) return place;
  return static_cast<int>(std::int64_t{place} * turn % (parts - 1));
}

// The block that a rank holds. The blocks of a replica are side by side, also where samples are cut
// further; a replica that holds its samples together has one.
int block_of(const ValueLayout& layout, const ProcessGrid& grid, int rank) {
  if (layout.kind == SplitKind::replica) return grid.replica_of(rank);
  const int parts = channel_parts(layout, grid);
  const int place = grid.position_of(rank) % parts;
  return rank - place + turned_block(place, layout.turn, parts);
}

}  // namespace

ValueLayout turned(const ValueLayout& x, ChannelGrid channels) {
  const int parts = channels.ranks();
  if (parts <= 2) return x;
  ValueLayout y = x;
  y.turn = static_cast<int>(std::int64_t{x.turn} * channels.channels % (parts - 1));
  return y;
}

Parts parts_of(const ValueLayout& layout, const ProcessGrid& grid) {
  // Samples are cut over all ranks, or over the replicas alone where the ranks of one share
  // something else.
  if (layout.kind == SplitKind::sample) return {.n = grid.ranks()};
  return {.n = grid.pc, .h = layout.h, .w = layout.w, .c = channel_parts(layout, grid)};
}

Partition partition_of(const ValueLayout& layout, const tensor::Shape& extents,
                       const ProcessGrid& grid) {
  std::vector<int> block_of_rank;
  block_of_rank.reserve(static_cast<std::size_t>(grid.ranks()));
  for (int rank = 0; rank < grid.ranks(); ++rank) {
    block_of_rank.push_back(block_of(layout, grid, rank));
  }
  return {extents, parts_of(layout, grid), std::move(block_of_rank)};
}

// The block number is taken apart, with c fastest: n, then h, then w, then c.
Box box_of_block(const tensor::Shape& extents, const Parts& parts, int block) {
  const int column = block / parts.c;
  const int row = column / parts.w;
  return {even_range(extents.n, parts.n, row / parts.h),
          even_range(extents.h, parts.h, row % parts.h),
          even_range(extents.w, parts.w, column % parts.w),
          even_range(extents.c, parts.c, block % parts.c)};
}

// Without the map of all ranks: a search asks for many thousand boxes.
Box box_of(const ValueLayout& layout, const tensor::Shape& extents, const ProcessGrid& grid,
           int rank) {
  return box_of_block(extents, parts_of(layout, grid), block_of(layout, grid, rank));
}

tensor::Shape largest_box(const ValueLayout& layout, const tensor::Shape& extents,
                          const ProcessGrid& grid) {
  const Parts parts = parts_of(layout, grid);
  return {largest_part(extents.n, parts.n), largest_part(extents.h, parts.h),
          largest_part(extents.w, parts.w), largest_part(extents.c, parts.c)};
}

}  // namespace rondo::train
