#pragma once

#include <cstddef>
#include <memory>

#include <rondo/sync/export.hpp>
#include <rondo/sync/optimizer.hpp>
#include <rondo/sync/replica.hpp>
#include <rondo/sync/update_scheme.hpp>
#include <rondo/transport/element.hpp>

namespace rondo::sync {

inline constexpr SchemeDescription synchronous_scheme{.name = "synchronous",
                                                      .exchange = Exchange::gradients,
                                                      .warm_up = WarmUp::pointless,
                                                      .sums_in_bf16 = true};

struct SynchronousOptions {
  /// Layers are reduced together until a bucket holds at least so many bytes of fp32; a layer of
  /// that size is a bucket of its own. Larger buckets mean fewer collectives that start later.
  std::size_t bucket_bytes = 256 * 1024;
  /// The input side's bucket, whose reduction nothing hides, holds no more than this if it holds
  /// several layers.
  std::size_t last_bucket_bytes = 64 * 1024;
  /// The longest that the averaged gradient of all layers may be; a longer one is scaled down to
  /// it (Pascanu, Mikolov, Bengio 2013). 0: no clipping.
  double clip_norm = 0.0;
  /// The type in which gradients are sent: f32, or bf16, which is half the bytes.
  transport::ElementType gradient_type = transport::ElementType::f32;
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
/// Sent as bf16, a bucket is rounded to the nearest when it is posted, each sum is rounded by the
/// transport (inside a node once, by a ring at every rank that it passes), and the sum is widened
/// again before the norm and the update. Rounding errors are relative to each element, whatever its
/// size: the division by global_samples comes after, in fp32, as do momenta and parameters. All
/// ranks get the same bits. Sums of numbers that bf16 holds, and that it holds as well, are exact.
/// A slice that one rank holds alone is not rounded: with one rank the type changes nothing.
///
/// Sends, per iteration and rank, one allreduce of each bucket: 2 (P-1)/P of the gradients' bytes,
/// which are 4 for each element, or 2 as bf16.
/// A slice that one rank holds alone is not reduced. Counts one global reduction per iteration.
///
/// Replicated: the parameters. State: the counters and the optimizer's.
///
/// Throws std::invalid_argument when the replica's arrays, layers and groups do not fit together,
/// when gradient_type is neither f32 nor bf16, when clip_norm is negative or not a number, and when
/// there is clipping although a rank does not hold all layers, or they have different groups, and
/// the replica does not say what it counts.
[[nodiscard]] RONDO_SYNC_API std::unique_ptr<UpdateScheme> make_synchronous(
    Replica replica, std::shared_ptr<Optimizer> optimizer, const SynchronousOptions& options = {});

}  // namespace rondo::sync
