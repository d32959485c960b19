#pragma once

#include <cstdint>
#include <filesystem>
#include <vector>

#include <rondo/train/compute_costs.hpp>
#include <rondo/train/experiment.hpp>
#include <rondo/train/export.hpp>
#include <rondo/train/model.hpp>
#include <rondo/train/plan.hpp>

namespace rondo::train {

// How fast an update scheme trains a model on P ranks that split samples, from the times of its
// layers on one. Nothing is run or measured for it; losses, data and noise are left out.
//
// Layers are counted from the input on. A rank computes b samples: forward of all layers, then
// backward from the last, weights before data. t_l is when layer l's gradients are final, E when
// backward ends, U the optimizer's pass, w_l the parameters of a layer, M of all. A(n, g) is an
// allreduce of n elements over g ranks: that of plan_best.hpp. Reductions travel
// one after another, each from when its gradients are final; those of adjacent layers go together
// until they are update.bucket_bytes. Where b samples are computed in several micro-batches, one
// after another (train.accumulate), those before the last stand in front: gradients are final in
// the last one, so that t_l and E lie behind them, and parameters are needed in the forward of the
// first one. Let S(L) be the end of backward or, if that is later, of the reductions of layers L.
//
//     synchronous   S(all) + U
//     sharded       the same, where half of A is in S, and U is a P-th; then forward waits for the
//                   parameters, bucket by bucket from the input side on, the other halves of A
//     lazy          ((tau - 1) S(rest) + W) / tau + U: the first layers are reduced once in tau
//                   iterations. W is S(rest), but behind the reductions of the rest comes that of
//                   the probe (the last lazy convolution's weights; under update.controller =
//                   "every_layer" those of all; not for tau = 1), from when its gradients are
//                   final, and then one of all lazy layers
//     k_step        E + U + A(M, P) / period, where the period is tau if update.period_policy
//                   chooses it; what is hidden by update.overlap_steps is left out
//     hierarchical  E + U + (sum_i n_i A(M, g_i) + A(M, P)) / period over the levels: one of
//                   local_period and its averaging group, and those of update.levels. The level of
//                   period k below one of k', or below the last, averages
//                   n = period / k - period / k' times
//     cyclic        a turn is U, in the memory of the worker's node. Then the token goes on: in
//                   alpha of the node to a worker there; to another node with the store, in
//                   2 alpha + 4 (M + S) / bandwidth, where S is what the optimizer keeps. Over N
//                   nodes that is T = P U + (P - N) alpha_node + N (2 alpha + 4 (M + S) /
//                   bandwidth), on one node T = P (U + alpha_node), and the token is back after
//                   R = max(T, E + U). Meanwhile a worker computes one mini-batch under
//                   update.delay = "fixed", (R - U) / E under "dynamic", at most minibatch_cap of
//                   them. On one rank E + U
//
// Under update.optimizer_state = "average" averages are of M + S elements instead of M. Statistics
// of batch norm, which are averaged too, and copying parameters out of the store are not counted.
//
// Ranks that are no more than ranks_per_node are on one node.

/// Which batch stays as it is while ranks become more.
enum class FixedBatch : std::uint8_t {
  per_rank,  ///< weak scaling: of all ranks together it is P times as large
  global,    ///< strong scaling: a rank's part is B / P, rounded up
};

struct ScalingOptions {
  int first = 1;  ///< ranks; then twice as many each time
  int last = 1;
  FixedBatch fixed = FixedBatch::per_rank;
  /// The job on each of these numbers of ranks. `batch` has the samples of a rank, or of all;
  /// gradients are sent as `gradient_type`, and S / M is `optimizer_elements`. `slowdown` counts
  /// where there are several ranks: one alone has no others beside it. `ranks`, and all that only
  /// grids need, has no effect.
  PlanOptions job = {};
  /// Counts for schemes with has_mean_period(): mean iterations of a window (lazy, at most
  /// update.max_interval), or steps of a round.
  double tau = 1.0;
};

struct ScalingPoint {
  int ranks = 1;
  std::int64_t global_batch = 0;
  double step_seconds = 0.0;  ///< in which all ranks together train the global batch
  /// Forward, backward and update of a rank's part of it; of a divided optimizer, of its share.
  double compute_seconds = 0.0;
  double images_per_second = 0.0;
  double speedup = 1.0;     ///< images per second to those of one rank
  double efficiency = 1.0;  ///< speedup / ranks

  /// What is added to computing: what backward does not hide, waiting. Below 0 where a cyclic
  /// update is for several mini-batches.
  [[nodiscard]] double exposed_seconds() const noexcept { return step_seconds - compute_seconds; }
};

/// A point for each number of ranks that have a sample each of every micro-batch. The scheme and
/// its keys are those of experiment.update; a lazy scheme's layers, if "auto", are those whose
/// reduction is not hidden on that many ranks. Throws std::invalid_argument where an option is
/// impossible, or where each of the numbers of ranks would leave a rank without a sample;
/// ConfigError where lazy_layers is impossible.
[[nodiscard]] RONDO_TRAIN_API std::vector<ScalingPoint> predict_scaling(
    const Model& model, const Experiment::Update& update, const ScalingOptions& options,
    const ComputeCosts& costs);

/// Does the training decide how often the scheme exchanges, so that its prediction needs
/// ScalingOptions::tau? Lazy, and k_step and hierarchical with a period policy other than
/// "constant".
[[nodiscard]] RONDO_TRAIN_API bool has_mean_period(const Experiment::Update& update);

/// The mean length of the windows or rounds of a run, in iterations, from its metrics.jsonl: of
/// those that ended behind so many steps of the run. Throws DataError that names the file where it
/// cannot be read or has none.
[[nodiscard]] RONDO_TRAIN_API double mean_window(const std::filesystem::path& metrics,
                                                 std::int64_t behind_step = 0);

/// The samples of a rank's micro-batches at each number of ranks, whose work is asked of the costs.
/// Throws as predict_scaling().
[[nodiscard]] RONDO_TRAIN_API std::vector<std::int64_t> samples_of_ranks(
    const ScalingOptions& options);

/// All layers as one rank runs them for so many samples.
[[nodiscard]] RONDO_TRAIN_API std::vector<LocalWork> unsplit_work(const Model& model,
                                                                  std::int64_t samples);

}  // namespace rondo::train
