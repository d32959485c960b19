#pragma once

#include <span>

#include <rondo/train/box.hpp>
#include <rondo/train/partition.hpp>
#include <rondo/train/redistribution.hpp>

namespace rondo::train {

/// The way back of a halo: rank r has computed sums for all of `computed[r]`, and they meet at the
/// ranks that hold the elements by `home`. What arrives is to be added to what is kept; receives
/// are in the order of peers, so sums have the same bits every time.
///
/// Where blocks are held by several ranks, those of a block have computed the same, and the i-th
/// holder of one sends to the i-th of another. Throws std::invalid_argument unless there is a box
/// for each rank.
[[nodiscard]] Redistribution halo_return(const Partition& home, std::span<const Box> computed,
                                         int rank);

}  // namespace rondo::train
