#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include <rondo/sync/replica.hpp>

namespace rondo::sync {

/// Adjacent layers [first_layer, last_layer) that are reduced together, and their elements.
struct Bucket {
  std::size_t first_layer = 0;
  std::size_t last_layer = 0;
  std::size_t offset = 0;
  std::size_t size = 0;
  transport::Communicator* slice = nullptr;
};

struct BucketLimits {
  std::size_t bytes = 0;       ///< a bucket is closed when it holds at least so many
  std::size_t last_bytes = 0;  ///< the most in the input side's, unless it is one layer
};

/// Cuts the layers into buckets, output side first.
///
/// From the output side, a bucket takes one layer after the other until it is full; it is also
/// closed before a layer of another group, before one that would fill a bucket alone, and before
/// the input side's bucket: the layers from the first on that fit into `last_bytes`.
[[nodiscard]] std::vector<Bucket> plan_buckets(std::span<const Layer> layers,
                                               const BucketLimits& limits);

}  // namespace rondo::sync
