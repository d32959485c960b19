#include <stdexcept>
#include <string>
#include <vector>

#include <rondo/train/channel_grid.hpp>

namespace rondo::train {
namespace {

void check(const Partition& x, const ChannelGrid& grid) {
  if (grid.channels > 0 && grid.filters > 0 && x.parts().c == grid.ranks()) return;
  throw std::invalid_argument("channel grid: " + std::to_string(grid.channels) + " x " +
                              std::to_string(grid.filters) + " does not fit an input in " +
                              std::to_string(x.parts().c) + " parts along C");
}

ChannelPlace place_of_block(int block, const ChannelGrid& grid) {
  const int channel_block = block % grid.ranks();
  return {channel_block / grid.filters, channel_block % grid.filters};
}

}  // namespace

ChannelPlace place_of(const Partition& x, ChannelGrid grid, int rank) {
  check(x, grid);
  return place_of_block(x.block_of(rank), grid);
}

Partition output_of(const Partition& x, ChannelGrid grid, tensor::Shape y) {
  check(x, grid);
  std::vector<int> block_of_rank;
  for (int rank = 0; rank < x.ranks(); ++rank) {
    const int block = x.block_of(rank);
    const ChannelPlace place = place_of_block(block, grid);
    block_of_rank.push_back(block - block % grid.ranks() + place.filter * grid.channels +
                            place.channel);
  }
  return {y, x.parts(), block_of_rank};
}

Box gathered_input(const Partition& x, ChannelGrid grid, int rank) {
  Box box = x.box_of(rank);
  box.c = even_range(x.extents().c, grid.channels, place_of(x, grid, rank).channel);
  return box;
}

Box partial_output(const Partition& x, ChannelGrid grid, tensor::Shape y, int rank) {
  Box box = x.with_extents(y).box_of(rank);
  box.c = even_range(y.c, grid.filters, place_of(x, grid, rank).filter);
  return box;
}

}  // namespace rondo::train
