#pragma once

#include <memory>

#include <rondo/sync/export.hpp>
#include <rondo/sync/optimizer.hpp>
#include <rondo/sync/replica.hpp>
#include <rondo/sync/synchronous.hpp>
#include <rondo/sync/update_scheme.hpp>

namespace rondo::sync {

inline constexpr SchemeDescription sharded_scheme{.name = "sharded",
                                                  .exchange = Exchange::gradients,
                                                  .warm_up = WarmUp::pointless,
                                                  .sums_in_bf16 = true,
                                                  .divides_optimizer = true};

/// Synchronous SGD whose optimizer is divided among the ranks: the first stage of ZeRO
/// (Rajbhandari, Rasley, Ruwase, He, SC 2020).
///
///     g_r = (sum of all ranks' gradients of share r) / global_samples    reduce_scatter
///     w_r = optimizer(w_r, g_r)                                          by rank r alone
///     w   = w_0, w_1, ...                                                allgather
///
/// Each of P ranks updates a P-th of every bucket (make_synchronous() says what a bucket is), so
/// that an update takes a P-th of the time, and an optimizer touches a P-th of its state: memory
/// that is never written is never there (Optimizer::state()).
///
/// A bucket's reduce_scatter is posted when its last layer is final, and overlaps backward.
/// finish() waits for them in that order and updates this rank's shares; then it posts the
/// allgathers, the input side's first, which overlap the next iteration's forward pass:
/// make_ready(l) waits for the bucket of layer l. **Until then the layer's parameters are in part
/// old**: call make_ready() of every layer before they are read elsewhere, for a checkpoint, say.
/// Evaluation and flush() wait for all.
///
/// The parameters equal those of make_synchronous() but for the order in which ranks' gradients are
/// added; where sums are exact, and with one rank, bit for bit. Clipping sums the squares of each
/// rank's shares in double, then over the ranks in their order: the norm may differ in its last
/// bits. The optimizer updates each element by itself.
///
/// Sends, per iteration and rank, of each bucket of n elements (P-1)/P * n * 4 bytes of gradients
/// (2 as bf16) and as many elements of parameters as fp32; with clipping, one number to each rank.
/// That is as much as an allreduce. Counts one global reduction per iteration, two collectives for
/// each bucket, and bytes so that a bucket counts as in make_synchronous().
///
/// Replicated: the parameters. State: the counters and this rank's shares of the optimizer's, which
/// differ from rank to rank; it is restored by that rank of as many only. restore() waits for
/// parameters that are still gathered, so give back the replica's own behind it.
///
/// Throws std::invalid_argument as make_synchronous() does, when the optimizer is not elementwise
/// (LARS), and when there is clipping although a rank does not hold all layers or they have
/// different groups.
[[nodiscard]] RONDO_SYNC_API std::unique_ptr<UpdateScheme> make_sharded(
    Replica replica, std::shared_ptr<Optimizer> optimizer, const SynchronousOptions& options = {});

}  // namespace rondo::sync
