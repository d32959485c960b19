// Which layers go together. Small layers would cost a synchronisation each, so adjacent ones share
// a bucket. The input side's bucket becomes final last, when there is no backward left to hide its
// reduction: it is kept small. Schemes and the planner ask here, so that a step is predicted with
// the buckets that it has.

#include <rondo/sync/buckets.hpp>

#include <cstddef>
#include <span>
#include <vector>

namespace rondo::sync {
namespace {

std::size_t bytes_of_layer(const LayerGradients& layer) { return layer.elements * sizeof(float); }

/// How many layers from the input side on fit into `limit`. A layer of another group than the first
/// ends the count: it may be of another size on other ranks.
std::size_t input_side(std::span<const LayerGradients> layers, std::size_t limit) {
  std::size_t count = 0;
  std::size_t bytes = 0;
  while (count < layers.size()) {
    bytes += bytes_of_layer(layers[count]);
    if (bytes > limit || layers[count].group != layers.front().group) break;
    ++count;
  }
  return count;
}

}  // namespace

std::vector<LayerRange> plan_buckets(std::span<const LayerGradients> layers,
                                     const BucketLimits& limits) {
  std::vector<LayerRange> buckets;
  const std::size_t last_bucket_end = input_side(layers, limits.last_bytes);
  bool open = false;  // may buckets.back() take another layer?
  std::size_t bytes = 0;
  for (std::size_t i = layers.size(); i-- > 0;) {
    const bool fills_alone = bytes_of_layer(layers[i]) >= limits.bytes;
    if (!open || fills_alone || i + 1 == last_bucket_end ||
        layers[i + 1].group != layers[i].group) {
      buckets.push_back({i, i + 1});
      bytes = 0;
    }
    buckets.back().first_layer = i;
    bytes += bytes_of_layer(layers[i]);
    open = bytes < limits.bytes;
  }
  return buckets;
}

}  // namespace rondo::sync
