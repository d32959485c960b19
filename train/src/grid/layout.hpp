#pragma once

#include <rondo/tensor/tensor.hpp>
#include <rondo/train/partition.hpp>

namespace rondo::train {

// How a value lies on a grid: what planner and executor mean by a layout. It is a Partition without
// extents and without its map of all ranks, so that a search can compare thousands of them.
//
// Channel blocks behind stationary-W layers are transposed. Transposing p_C x p_F brings block b to
// b p_C mod (p - 1), and the last to itself; so after several layers, position q of a replica holds
// block q * turn mod (p - 1), where turn is the product of all p_C modulo p - 1; 1 is in order.
//
// Where space is cut, too, position q stands for tile q / p, and for place q mod p within it:
// blocks are transposed within each tile alike. So ranks whose positions are equal modulo p hold
// the same channels, however often they have been transposed.
struct ValueLayout {
  SplitKind kind = SplitKind::sample;
  int h = 1;
  int w = 1;
  int turn = 1;

  [[nodiscard]] bool operator==(const ValueLayout&) const noexcept = default;
};

// Is each dimension cut into the same parts? Channel blocks may lie in another order.
[[nodiscard]] constexpr bool cut_alike(const ValueLayout& a, const ValueLayout& b) noexcept {
  return a.kind == b.kind && a.h == b.h && a.w == b.w;
}

// Into how many parts channels are cut.
[[nodiscard]] constexpr int channel_parts(const ValueLayout& layout,
                                          const ProcessGrid& grid) noexcept {
  return cuts_channels(layout.kind) ? grid.pr / (layout.h * layout.w) : 1;
}

// Layout of y where x lies as `x` and the layer is split `channels`; see output_of().
[[nodiscard]] ValueLayout turned(const ValueLayout& x, ChannelGrid channels);

// Into how many parts each dimension is cut.
[[nodiscard]] Parts parts_of(const ValueLayout& layout, const ProcessGrid& grid);

// The same with all ranks, for a value of these extents.
[[nodiscard]] Partition partition_of(const ValueLayout& layout, const tensor::Shape& extents,
                                     const ProcessGrid& grid);

// One block of an array that is cut so: Partition::box().
[[nodiscard]] Box box_of_block(const tensor::Shape& extents, const Parts& parts, int block);

// The box that a rank holds: box_of() of the Partition.
[[nodiscard]] Box box_of(const ValueLayout& layout, const tensor::Shape& extents,
                         const ProcessGrid& grid, int rank);

// Extents of the largest box.
[[nodiscard]] tensor::Shape largest_box(const ValueLayout& layout, const tensor::Shape& extents,
                                        const ProcessGrid& grid);

}  // namespace rondo::train
