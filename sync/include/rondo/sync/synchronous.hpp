#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include <rondo/sync/export.hpp>
#include <rondo/sync/optimizer.hpp>
#include <rondo/sync/replica.hpp>
#include <rondo/sync/update_scheme.hpp>

namespace rondo::sync {

inline constexpr SchemeDescription synchronous_scheme{
    .name = "synchronous", .exchange = Exchange::gradients, .warm_up = WarmUp::pointless};

struct SynchronousOptions {
  /// Layers are reduced together until a bucket holds at least so many bytes; a layer of that
  /// size is a bucket of its own. Larger buckets mean fewer collectives that start later.
  std::size_t bucket_bytes = 256 * 1024;
  /// The input side's bucket, whose reduction nothing hides, holds no more than this if it holds
  /// several layers.
  std::size_t last_bucket_bytes = 64 * 1024;
  /// The longest that the averaged gradient of all layers may be; a longer one is scaled down to
  /// it (Pascanu, Mikolov, Bengio 2013). 0: no clipping.
  double clip_norm = 0.0;
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
/// With clipping, finish() waits for all buckets first: the norm is that of the whole gradient,
/// which every rank computes from the same reduced bits, in double and in a fixed order. Nothing
/// more is sent, but for one number per rank of a replica that holds the model in slices (Slices).
/// A gradient that is short enough is updated by as without clipping, bit for bit.
///
/// Sends, per iteration and rank, one allreduce of each bucket: 2 (P-1)/P of the gradients' bytes.
/// A slice that one rank holds alone is not reduced. Counts one global reduction per iteration.
///
/// Replicated: the parameters. State: the counters and the optimizer's.
///
/// Throws std::invalid_argument when the replica's arrays, layers and groups do not fit together,
/// when clip_norm is negative or not a number, and when there is clipping although a rank does not
/// hold all layers, or they have different groups, and the replica does not say what it counts.
[[nodiscard]] RONDO_SYNC_API std::unique_ptr<UpdateScheme> make_synchronous(
    Replica replica, std::shared_ptr<Optimizer> optimizer, const SynchronousOptions& options = {});

/// A synchronous start for schemes that need one: `first` runs the first `steps` iterations, `then`
/// all others.
///
///     iteration 0 .. steps-1:   first
///     begin() of iteration `steps`:  first.flush();  from here on: then
///
/// Both schemes have the same Replica, and usually share one Optimizer, so that momenta go on.
/// Iterations are counted here and reach the schemes as they come: Step::index runs on. `then` is
/// not called before its first begin(), so what it takes from the parameters there is the result
/// of the warm-up; an evaluation or a checkpoint right after the last iteration of the warm-up is
/// still that of `first`.
///
/// Sends what the scheme that runs sends. Counters are the sums of both; copy_for_evaluation(),
/// flush(), replicated() and pace() are those of the one that ran last.
///
/// State: the number of iterations done, the counters of `first`, and the state of the scheme
/// that ran last. `then` cannot be taken back to its beginning: restore() of a state from within
/// the warm-up throws std::logic_error after `then` has begun.
///
/// Throws std::invalid_argument when a scheme is null or `steps` is negative; 0 is `then` alone.
[[nodiscard]] RONDO_SYNC_API std::unique_ptr<UpdateScheme> make_warm_up(
    std::unique_ptr<UpdateScheme> first, std::unique_ptr<UpdateScheme> then, std::int64_t steps);

}  // namespace rondo::sync
