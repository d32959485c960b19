#include "base/bucket_reduction.hpp"

#include <algorithm>
#include <span>
#include <utility>

#include <rondo/transport/communicator.hpp>
#include <rondo/transport/world.hpp>

#include "base/tiled_update.hpp"

namespace rondo::sync {
namespace {

/// A slice that this rank holds alone meets nobody.
bool is_reduced(const Bucket& bucket) { return bucket.size > 0 && bucket.slice->size() > 1; }

}  // namespace

BucketReduction::BucketReduction(const Replica& replica, std::size_t first_layer,
                                 const BucketLimits& limits)
    : replica_(replica),
      first_layer_(first_layer),
      buckets_(plan_buckets(std::span(replica.layers).subspan(first_layer), limits)),
      bucket_of_(replica.layers.size() - first_layer, 0),
      progress_(buckets_.size()) {
  for (std::size_t bucket = 0; bucket < buckets_.size(); ++bucket) {
    for (std::size_t i = buckets_[bucket].first_layer; i < buckets_[bucket].last_layer; ++i) {
      bucket_of_[i] = bucket;
    }
  }
}

void BucketReduction::begin() {
  posted_ = 0;
  for (std::size_t i = 0; i < buckets_.size(); ++i) {
    progress_[i].missing = buckets_[i].last_layer - buckets_[i].first_layer;
  }
}

// In the order of the plan, and not in the order of completion: ranks whose layers become final
// in different orders still post the same collectives in the same order.
void BucketReduction::layer_final(std::size_t layer, SchemeCounters& counters) {
  --progress_[bucket_of_[layer - first_layer_]].missing;
  for (; posted_ < buckets_.size() && progress_[posted_].missing == 0; ++posted_) {
    const Bucket& bucket = buckets_[posted_];
    if (!is_reduced(bucket)) continue;
    progress_[posted_].request =
        bucket.slice->allreduce(replica_.gradients.subspan(bucket.offset, bucket.size));
    ++counters.collectives;
    counters.global_bytes += bucket.size * sizeof(float);
  }
}

void BucketReduction::wait() {
  for (Progress& bucket : progress_) bucket.request.wait();
}

void BucketReduction::update(Optimizer& optimizer, const Update& update) {
  for (std::size_t i = 0; i < buckets_.size(); ++i) {
    progress_[i].request.wait();
    const auto [offset, size] = std::pair(buckets_[i].offset, buckets_[i].size);
    tiled_update(*replica_.world, optimizer, offset, replica_.parameters.subspan(offset, size),
                 replica_.gradients.subspan(offset, size), update);
  }
}

bool BucketReduction::reduces() const noexcept { return std::ranges::any_of(buckets_, is_reduced); }

}  // namespace rondo::sync
