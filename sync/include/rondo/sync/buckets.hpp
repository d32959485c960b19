#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include <rondo/sync/export.hpp>

namespace rondo::sync {

/// How large buckets are: gradients of adjacent layers that are reduced together. In bytes of fp32,
/// as gradients lie in memory, whatever they are sent as.
struct BucketLimits {
  std::size_t bytes = 0;       ///< a bucket is closed when it holds at least so many
  std::size_t last_bytes = 0;  ///< the most in the input side's, unless it is one layer

  /// The limits of a configuration's update.bucket_bytes. The input side's bucket is final when
  /// backward ends, so that nothing hides its reduction: it is a quarter of the others.
  [[nodiscard]] static constexpr BucketLimits of(std::size_t bucket_bytes) noexcept {
    return {.bytes = bucket_bytes, .last_bytes = bucket_bytes / 4};
  }
};

/// The gradients of one layer, as plan_buckets() sees them.
struct LayerGradients {
  std::size_t elements = 0;
  int group = 0;  ///< layers with the same number are reduced over the same ranks
};

/// Adjacent layers [first_layer, last_layer) that are reduced together.
struct LayerRange {
  std::size_t first_layer = 0;
  std::size_t last_layer = 0;
};

/// Cuts the layers, which are in the order of forward, into buckets; the output side's is first.
///
/// From the output side, a bucket takes one layer after the other until it is full; it is also
/// closed before a layer of another group, before one that would fill a bucket alone, and before
/// the input side's bucket: the layers from the first on that fit into `last_bytes`.
[[nodiscard]] RONDO_SYNC_API std::vector<LayerRange> plan_buckets(
    std::span<const LayerGradients> layers, const BucketLimits& limits);

}  // namespace rondo::sync
