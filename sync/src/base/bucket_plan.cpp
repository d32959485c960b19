#include "base/bucket_plan.hpp"

namespace rondo::sync {
namespace {

std::size_t bytes_of(std::size_t elements) { return elements * sizeof(float); }

/// How many layers from the input side on fit into `limit`. Those of another slice group than the
/// first end it: they may be of another size on other ranks.
std::size_t input_side(std::span<const Layer> layers, std::size_t limit) {
  std::size_t count = 0;
  std::size_t bytes = 0;
  while (count < layers.size()) {
    bytes += bytes_of(layers[count].size);
    const bool alike = layers[count].groups.slice == layers.front().groups.slice;
    if (bytes > limit || !alike) break;
    ++count;
  }
  return count;
}

}  // namespace

std::vector<Bucket> plan_buckets(std::span<const Layer> layers, const BucketLimits& limits) {
  std::vector<Bucket> buckets;
  const std::size_t last_bucket_end = input_side(layers, limits.last_bytes);
  bool open = false;  // may buckets.back() take another layer?
  for (std::size_t i = layers.size(); i-- > 0;) {
    const Layer& layer = layers[i];
    const bool fills_alone = bytes_of(layer.size) >= limits.bytes;
    if (!open || fills_alone || i + 1 == last_bucket_end ||
        buckets.back().slice != layer.groups.slice) {
      buckets.push_back({i, i + 1, layer.offset, 0, layer.groups.slice});
    }
    Bucket& bucket = buckets.back();
    bucket.first_layer = i;
    bucket.offset = layer.offset;
    bucket.size += layer.size;
    open = bytes_of(bucket.size) < limits.bytes;
  }
  return buckets;
}

}  // namespace rondo::sync
