#pragma once

#include <cstddef>
#include <memory>

#include <rondo/sync/export.hpp>
#include <rondo/sync/optimizer.hpp>
#include <rondo/sync/replica.hpp>
#include <rondo/sync/update_scheme.hpp>

namespace rondo::sync {

struct SynchronousOptions {
  /// Layers are reduced together until a bucket holds at least so many bytes; a layer of that
  /// size is a bucket of its own. Larger buckets mean fewer collectives that start later.
  std::size_t bucket_bytes = 256 * 1024;
  /// The input side's bucket, whose reduction nothing hides, holds no more than this if it holds
  /// several layers.
  std::size_t last_bucket_bytes = 64 * 1024;
};

/// Synchronous SGD, the baseline that all other schemes are measured against.
///
///     g = (sum of all ranks' gradients) / global_samples;  w = optimizer(w, g)     every iteration
///
/// Adjacent layers with the same `slice` group form buckets. A bucket is posted as one allreduce
/// as soon as its last layer is final, so that all but the input side's overlaps backward;
/// finish() waits for the buckets in that order and updates each while later ones still travel.
/// Buckets are posted in the same order on every rank, in whatever order layers become final.
///
/// Sends, per iteration and rank, one allreduce of each bucket: 2 (P-1)/P of the gradients' bytes.
/// A slice that one rank holds alone is not reduced. Counts one global reduction per iteration.
///
/// Replicated: the parameters. State: the counters and the optimizer's.
///
/// Throws std::invalid_argument when the replica's arrays, layers and groups do not fit together.
[[nodiscard]] RONDO_SYNC_API std::unique_ptr<UpdateScheme> make_synchronous(
    Replica replica, std::shared_ptr<Optimizer> optimizer, const SynchronousOptions& options = {});

}  // namespace rondo::sync
