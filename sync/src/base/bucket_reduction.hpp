#pragma once

#include <cstddef>
#include <vector>

#include <rondo/sync/optimizer.hpp>
#include <rondo/sync/replica.hpp>
#include <rondo/sync/update_scheme.hpp>
#include <rondo/transport/request.hpp>

#include "base/bucket_plan.hpp"

namespace rondo::sync {

/// Sums the gradients of a replica's layers from `first_layer` on over their slices, in buckets,
/// while backward goes on.
///
/// Per iteration: begin(); layer_final() for every layer from `first_layer` on; update().
class BucketReduction {
 public:
  /// `replica` is lent.
  BucketReduction(const Replica& replica, std::size_t first_layer, const BucketLimits& limits);

  void begin();

  /// Posts the buckets that are complete now, and counts what was posted.
  void layer_final(std::size_t layer, SchemeCounters& counters);

  [[nodiscard]] bool all_posted() const noexcept { return posted_ == buckets_.size(); }

  /// Returns when all buckets are reduced.
  void wait();

  /// Waits for the buckets in the order posted; each is updated as soon as it is reduced, while
  /// later ones still travel.
  void update(Optimizer& optimizer, const Update& update);

  /// Does any bucket meet another rank?
  [[nodiscard]] bool reduces() const noexcept;

 private:
  /// How far a bucket is within the iteration.
  struct Progress {
    std::size_t missing = 0;  ///< layers that are not final yet
    transport::Request request = {};
  };

  const Replica& replica_;
  std::size_t first_layer_;
  std::vector<Bucket> buckets_;  // in the order of posting; their layers from first_layer_ on
  std::vector<std::size_t> bucket_of_;  // by layer from first_layer_ on
  std::vector<Progress> progress_;      // by bucket
  std::size_t posted_ = 0;              // buckets
};

}  // namespace rondo::sync
