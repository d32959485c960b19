#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include <rondo/train/compute_costs.hpp>
#include <rondo/train/experiment.hpp>
#include <rondo/train/export.hpp>
#include <rondo/train/model.hpp>
#include <rondo/train/plan.hpp>

namespace rondo::train {

// How fast an update scheme trains a model on P ranks that split samples, from the times of its
// layers on one. Nothing here runs or measures; losses, data and noise are left out.
//
// Layers are counted from the input on. A rank computes b samples: forward of all layers, then
// backward from the last, weights before data. t_l is when layer l's gradients are final, E when
// backward ends, U the optimizer's pass, w_l the parameters of a layer, M of all. A(n, g) is an
// allreduce of n words over g ranks, 2 c(n, g) of plan.hpp, on two levels. Reductions travel one
// after another, each from when its gradients are final; those of adjacent layers go together until
// they are update.bucket_bytes. Let S(L) be the end of backward or, if that is later, of the
// reductions of layers L.
//
//     synchronous   S(all) + U
//     lazy          ((tau - 1) S(rest) + W) / tau + U: the first layers are reduced once in tau
//                   iterations. W is S(rest), but behind the reductions of the rest comes that of
//                   the probe (the last lazy convolution's weights; not for tau = 1), from when its
//                   gradients are final, and then one of all lazy layers
//     k_step        E + U + A(M, P) / period
//     hierarchical  E + U + ((period / local_period - 1) A(M, g) + A(M, P)) / period, where g are
//                   the ranks of a group
//     cyclic        a turn moves the parameters there and back and the token on: H = 3 alpha +
//                   8 M / bandwidth + U. The token is back after R = max(P H, E + H). Meanwhile a
//                   worker computes one mini-batch under update.delay = "fixed", (R - H) / E under
//                   "dynamic". On one rank E + U
//
// With several ranks per node, cyclic moves between nodes if the ranks are more than one node's.

/// Which batch stays as it is while ranks become more.
enum class FixedBatch : std::uint8_t {
  per_rank,  ///< weak scaling: of all ranks together it is P times as large
  global,    ///< strong scaling: a rank's part is B / P, rounded up
};

struct ScalingOptions {
  int first = 1;  ///< ranks; then twice as many each time
  int last = 1;
  FixedBatch fixed = FixedBatch::per_rank;
  std::int64_t batch = 128;  ///< samples: of a rank, or of all
  LinkCost fabric = {};
  LinkCost node = {};
  int ranks_per_node = 1;
  double tau = 1.0;  ///< lazy: mean iterations of a window
};

struct ScalingPoint {
  int ranks = 1;
  std::int64_t global_batch = 0;
  double step_seconds = 0.0;     ///< in which all ranks together train the global batch
  double compute_seconds = 0.0;  ///< forward, backward and update of a rank's part of it
  double images_per_second = 0.0;
  double speedup = 1.0;     ///< images per second to those of one rank
  double efficiency = 1.0;  ///< speedup / ranks

  /// What is added to computing: what backward does not hide, waiting.
  [[nodiscard]] double exposed_seconds() const noexcept { return step_seconds - compute_seconds; }
};

/// A point for each number of ranks that have a sample each. The scheme and its keys are those of
/// experiment.update; a lazy scheme's layers, if "auto", are those whose reduction is not hidden on
/// that many ranks. Throws std::invalid_argument where an option is impossible, ConfigError where
/// lazy_layers is.
[[nodiscard]] RONDO_TRAIN_API std::vector<ScalingPoint> predict_scaling(
    const Model& model, const Experiment::Update& update, const ScalingOptions& options,
    const ComputeCosts& costs);

/// The mean length of the windows of a run, in iterations, from its metrics.jsonl. Throws
/// std::runtime_error that names the file where it cannot be read or has no window.
[[nodiscard]] RONDO_TRAIN_API double mean_window(const std::filesystem::path& metrics);

/// The samples of a rank at each number of ranks, whose work is asked of the costs.
[[nodiscard]] RONDO_TRAIN_API std::vector<std::int64_t> samples_of_ranks(
    const ScalingOptions& options);

/// All layers as one rank runs them for so many samples.
[[nodiscard]] RONDO_TRAIN_API std::vector<LocalWork> unsplit_work(const Model& model,
                                                                  std::int64_t samples);

}  // namespace rondo::train
