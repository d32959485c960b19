#pragma once

#include <cstdint>
#include <vector>

#include <rondo/tensor/shape.hpp>
#include <rondo/train/box.hpp>
#include <rondo/train/layer_split.hpp>
#include <rondo/train/partition.hpp>

#include "plan/collective_cost.hpp"

namespace rondo::train {

// How a value lies on a grid: the Partition that a layer split so reads or writes, without its
// map of all ranks, for thousands of them.
//
// Channel blocks behind stationary-W layers are transposed. Transposing p_C x p_F brings block b to
// b p_C mod (p - 1), and the last to itself; so after several layers, position q of a group holds
// block q * turn mod (p - 1), where turn is the product of all p_C modulo p - 1; 1 is in order.
struct ValueLayout {
  SplitKind kind = SplitKind::sample;
  int h = 1;
  int w = 1;
  int turn = 1;

  [[nodiscard]] bool operator==(const ValueLayout&) const noexcept = default;
};

// Layout of y where x lies as `x` and the layer is split `channels`.
[[nodiscard]] ValueLayout turned(const ValueLayout& x, ChannelGrid channels);

// What a rank holds.
[[nodiscard]] Box box_of(const ValueLayout& layout, const tensor::Shape& extents,
                         const ProcessGrid& grid, int rank);

// Extents of the largest box.
[[nodiscard]] tensor::Shape largest_box(const ValueLayout& layout, const tensor::Shape& extents,
                                        const ProcessGrid& grid);

// What the rank that receives most receives when a value changes its layout. A few ranks of the
// last group stand for all: it has most samples.
[[nodiscard]] Messages redistribution_of(const ValueLayout& from, const ValueLayout& to,
                                         const tensor::Shape& extents, const ProcessGrid& grid);

}  // namespace rondo::train
