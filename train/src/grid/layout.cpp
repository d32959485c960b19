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

// Which block of its replica's samples a position holds; 0 where the replica holds them together.
int block_within(const ValueLayout& layout, const ProcessGrid& grid, int position) {
  if (layout.kind == SplitKind::replica) return 0;
  const int parts = channel_parts(layout, grid);
  const int place = position % parts;
  return position - place + turned_block(place, layout.turn, parts);
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
  if (over_all) return box;
  const int tile = block / parts.c;
  box.h = even_range(extents.h, parts.h, tile / parts.w);
  box.w = even_range(extents.w, parts.w, tile % parts.w);
  box.c = even_range(extents.c, parts.c, block % parts.c);
  return box;
}

tensor::Shape largest_box(const ValueLayout& layout, const tensor::Shape& extents,
                          const ProcessGrid& grid) {
  const Parts parts = parts_of(layout, grid);
  return {largest_part(extents.n, parts.n), largest_part(extents.h, parts.h),
          largest_part(extents.w, parts.w), largest_part(extents.c, parts.c)};
}

}  // namespace rondo::train
