#include <stdexcept>
#include <string>

#include <rondo/train/partition.hpp>

namespace rondo::train {
namespace {

void check(const ProcessGrid& grid, const Parts& within) {
  if (grid.pr < 1 || grid.pc < 1) {
    throw std::invalid_argument("process grid: " + std::to_string(grid.pr) + " x " +
                                std::to_string(grid.pc) + " has no ranks");
  }
  if (within.blocks() < 1 || grid.pr % within.blocks() != 0) {
    throw std::invalid_argument("process grid: groups of " + std::to_string(grid.pr) +
                                " ranks cannot share " + std::to_string(within.blocks()) +
                                " blocks evenly");
  }
}

}  // namespace

Partition on_grid(tensor::Shape extents, ProcessGrid grid, Parts within) {
  check(grid, within);
  const int blocks = within.blocks();
  std::vector<int> block_of_rank;
  for (int rank = 0; rank < grid.ranks(); ++rank) {
    block_of_rank.push_back(grid.group_of(rank) * blocks +
                            grid.position_of(rank) * blocks / grid.pr);
  }
  within.n *= grid.pc;
  return {extents, within, block_of_rank};
}

Partition replicated(tensor::Shape extents, int ranks) {
  return on_grid(extents, {.pr = ranks}, {});
}

Partition by_sample(tensor::Shape extents, int ranks) {
  return on_grid(extents, {.pc = ranks}, {});
}

Partition by_group(tensor::Shape extents, ProcessGrid grid) { return on_grid(extents, grid, {}); }

Partition by_channel(tensor::Shape extents, ProcessGrid grid) {
  return on_grid(extents, grid, {.c = grid.pr});
}

Partition by_space(tensor::Shape extents, ProcessGrid grid, int h_parts, int w_parts) {
  if (h_parts < 1 || w_parts < 1 || h_parts * w_parts != grid.pr) {
    throw std::invalid_argument("process grid: groups of " + std::to_string(grid.pr) +
                                " ranks cannot split pictures into " + std::to_string(h_parts) +
                                " x " + std::to_string(w_parts) + " parts");
  }
  return on_grid(extents, grid, {.h = h_parts, .w = w_parts});
}

}  // namespace rondo::train
