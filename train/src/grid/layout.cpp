// Layouts of values, as planner and executor describe them: which block of a value a rank holds
// follows from the rank's replica and its position there. All is arithmetic on small numbers.

#include "grid/layout.hpp"

#include <cstdint>
#include <vector>

namespace rondo::train {
namespace {

// The channel block that a position of a replica holds; the last position keeps the last block.
int turned_block(int position, int turn, int pr) {
  if (position == pr - 1) return position;
  return static_cast<int>(std::int64_t{position} * turn % (pr - 1));
}

// Which block of its replica's samples a position holds; 0 where the replica holds them together.
int block_within(const ValueLayout& layout, const ProcessGrid& grid, int position) {
  switch (layout.kind) {
    case SplitKind::replica:
      return 0;
    case SplitKind::channel:
      return turned_block(position, layout.turn, grid.pr);
    case SplitKind::sample:
    case SplitKind::space:
      break;
  }
  return position;
}

}  // namespace

ValueLayout turned(const ValueLayout& x, ChannelGrid channels) {
  const int pr = channels.ranks();
  if (pr <= 2) return x;
  ValueLayout y = x;
  y.turn = static_cast<int>(std::int64_t{x.turn} * channels.channels % (pr - 1));
  return y;
}

Parts parts_of(const ValueLayout& layout, const ProcessGrid& grid) {
  // Samples are cut over all ranks, or over the replicas alone where the ranks of one share
  // something else.
  switch (layout.kind) {
    case SplitKind::sample:
      return {.n = grid.ranks()};
    case SplitKind::replica:
      return {.n = grid.pc};
    case SplitKind::space:
      return {.n = grid.pc, .h = layout.h, .w = layout.w};
    case SplitKind::channel:
      break;
  }
  return {.n = grid.pc, .c = grid.pr};
}

// Blocks are numbered with those of one replica side by side, also where samples are cut further.
Partition partition_of(const ValueLayout& layout, const tensor::Shape& extents,
                       const ProcessGrid& grid) {
  const Parts parts = parts_of(layout, grid);
  const int within = parts.blocks() / grid.pc;
  std::vector<int> block_of_rank;
  block_of_rank.reserve(static_cast<std::size_t>(grid.ranks()));
  for (int rank = 0; rank < grid.ranks(); ++rank) {
    const int block = block_within(layout, grid, grid.position_of(rank));
    block_of_rank.push_back(grid.replica_of(rank) * within + block);
  }
  return {extents, parts, std::move(block_of_rank)};
}

Box box_of(const ValueLayout& layout, const tensor::Shape& extents, const ProcessGrid& grid,
           int rank) {
  const Parts parts = parts_of(layout, grid);
  const int block = block_within(layout, grid, grid.position_of(rank));
  // Without the map of all ranks: a search asks for many thousand boxes.
  const bool over_all = layout.kind == SplitKind::sample;
  Box box = whole(extents);
  box.n = even_range(extents.n, parts.n, over_all ? rank : grid.replica_of(rank));
  if (layout.kind == SplitKind::space) {
    box.h = even_range(extents.h, parts.h, block / parts.w);
    box.w = even_range(extents.w, parts.w, block % parts.w);
  }
  if (layout.kind == SplitKind::channel) box.c = even_range(extents.c, parts.c, block);
  return box;
}

tensor::Shape largest_box(const ValueLayout& layout, const tensor::Shape& extents,
                          const ProcessGrid& grid) {
  const Parts parts = parts_of(layout, grid);
  return {largest_part(extents.n, parts.n), largest_part(extents.h, parts.h),
          largest_part(extents.w, parts.w), largest_part(extents.c, parts.c)};
}

}  // namespace rondo::train
