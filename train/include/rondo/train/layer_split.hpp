#pragma once

#include <cstdint>

#include <rondo/train/channel_grid.hpp>

namespace rondo::train {

/// Over what the work of a convolution or fully connected layer is split. All other layers follow
/// the layout of what they read.
enum class SplitKind : std::uint8_t {
  sample,   ///< samples over all ranks of the grid
  group,    ///< samples over the replicas; all ranks of a replica do the same
  space,    ///< samples over the replicas, rows and columns of the image within a replica
  channel,  ///< samples over the replicas, channels and filters within a replica; of a fully
            ///< connected layer its outputs (the 1.5D algorithm)
};

/// How one layer is split on a ProcessGrid. Numbers of parts that are not the kind's are 1.
struct LayerSplit {
  SplitKind kind = SplitKind::sample;
  int h = 1;                  ///< space: parts of the rows
  int w = 1;                  ///< space: parts of the columns
  ChannelGrid channels = {};  ///< channel: p_C x p_F, as many as a replica has ranks

  [[nodiscard]] constexpr bool operator==(const LayerSplit&) const noexcept = default;
};

/// Which ranks share the statistics of batch norm.
enum class BatchNormGroup : std::uint8_t { rank, group, all };

}  // namespace rondo::train
