#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <rondo/train/experiment.hpp>
#include <rondo/train/export.hpp>
#include <rondo/train/model.hpp>
#include <rondo/train/parameters.hpp>
#include <rondo/train/partition.hpp>
#include <rondo/transport/allreduce_paths.hpp>

namespace rondo::train {

// Communication of a training step on a process grid, in closed form: Gholami, Azad, Jin, Keutzer,
// Buluc, "Integrated Model, Batch, and Domain Parallelism in Training Neural Networks", SPAA 2018.
//
// P ranks form a grid of P_r x P_c. Y = W X: W is split by rows (filters, outputs) over P_r, X by
// columns (samples) over P_c. Nothing here runs, measures or reads data.
//
// Layers are the convolutions and fully connected layers of the model, in order, i = 1, 2, ...:
// d_i = outputs per sample (before pooling), e_i = inputs per sample (after pooling), |W_i| =
// k k C_in C_out; biases and batch norm count as nothing. B = samples of a step, alpha = seconds
// per message, beta = seconds per element = 4 bytes / bandwidth. A collective of n elements over g
// ranks:
//
//     c(n, g) = alpha ceil(log2 g) + beta n (g-1)/g                   c(n, 1) = 0
//
//     grid      sum c(B/Pc d_i, Pr) + 2 sum_{i>=2} c(B/Pc e_i, Pr) + 2 sum c(|W_i|/Pr, Pc)
//     batch     the grid 1 x P
//     model     the grid P x 1
//     domain    sum h(B X_W X_C floor(k/2)) + sum_{i>=2} h(B Y_W Y_C floor(k/2))
//               + 2 sum c(|W_i|, P)
//               with h(n) = alpha + beta n, and h(0) = 0; nothing on one rank
//     integrated  fully connected layers as on the grid; convolutions by batch over all P while
//               P <= B, beyond that by domain over P_r, with B/P_c samples and c(|W_i|, P)
//
// With R > 1 ranks per node a collective runs on two levels. Ranks are numbered so that those of a
// replica are adjacent, and nodes take R ranks in turn. A process group of g ranks that are q apart
// has s = gcd(g, R/q) ranks on a node where q divides R, else 1; then
//
//     c(n, g) = alpha_node ceil(log2 s) + beta_node n (s-1)/s
//               + alpha ceil(log2 g/s) + beta (n/s) (g/s-1)/(g/s)
//
// and a halo costs what the node does if s = g. Bandwidth is that of one rank, or, if that is less,
// its part of port_bandwidth, by which a node sends to others. With equal levels
// the elements are those of the flat form, and the messages at least as many.

enum class Strategy : std::uint8_t { batch, model, grid, domain, integrated };

[[nodiscard]] RONDO_TRAIN_API std::string_view name_of(Strategy strategy) noexcept;

/// The seconds of a message: `alpha_seconds` + its bytes / `bandwidth`, in bytes per second.
struct LinkCost {
  double alpha_seconds = 2e-6;
  double bandwidth = 6e9;
};

/// Bytes of the optimizer's state and of the update scheme's arrays on a rank of `grid` that holds
/// so much of the model; `slices` are those of slices_in_replica().
using UpdateBytes = std::function<std::uint64_t(const ParameterLayout& layout, ProcessGrid grid,
                                                const std::vector<int>& slices)>;

/// The job that is planned for.
struct PlanOptions {
  int ranks = 1;
  std::int64_t batch = 128;  ///< B, samples of a step
  LinkCost fabric = {};      ///< between nodes, and everywhere with one rank per node
  LinkCost node = {};        ///< between ranks of a node, where there are several
  int ranks_per_node = 1;
  /// Bytes per second of all ranks of a node together, to other nodes; 0: no limit. In an allreduce
  /// by doubling one rank of a node sends for each group; otherwise all its ranks send.
  double port_bandwidth = 0.0;
  transport::AllreducePaths paths = transport::AllreducePaths();  ///< those of transport.allreduce
  double flops = 0.0;              ///< per second and rank; 0: compute time is not predicted
  std::uint64_t memory_limit = 0;  ///< bytes of a rank; 0: none
  /// Elements that the optimizer keeps for a parameter. 1 is the momentum of "sgd" and "lars".
  int optimizer_elements = 1;
  /// Has a rank a share of the optimizer's state only, as with update.scheme = "sharded"? Then
  /// best_plans() counts shares while it searches; what a rank takes in the end is update_bytes,
  /// which therefore is needed.
  bool divides_optimizer = false;
  /// In which a rank computes its part of a batch: memory and the time of best_plans() follow it,
  /// and each needs a sample. The closed forms count messages as if there were one.
  int micro_batches = 1;
  int threads = 1;  ///< of a rank; only memory follows them
  /// best_plans(): of weight gradients, in which adjacent layers are reduced together; 0: each
  /// layer is by itself.
  std::int64_t bucket_bytes = 0;
  /// How many times as long a rank computes beside the other ranks of its host as alone, at least
  /// 1: they share cores, caches, memory bandwidth and the processor's power. best_plans()
  /// multiplies what computing costs by it.
  double slowdown = 1.0;
  /// The type of activations, in exchanges and in memory. Sums over ranks, parameters and gradients
  /// are fp32.
  tensor::DataType type = tensor::DataType::f32;
  /// How convolutions are computed in fp32: their memory follows it.
  tensor::ConvolutionAlgorithm convolution = tensor::ConvolutionAlgorithm::fast;
  /// The type of weight gradients as ranks send them; in bf16 a rank has room for them once more.
  tensor::DataType gradient_type = tensor::DataType::f32;
  /// The ranks that share the statistics of batch norm; best_plans() counts what that exchanges.
  BatchNormScope batch_norm = BatchNormScope::rank;
  /// Updates need whole layers on every rank, as those of "lars" do, and sharded ones that clip.
  bool whole_layers = false;
  /// best_plans(): may ranks compute the same layer alike (SplitKind::replica)? Not where they have
  /// other threads or processors, because then their bits differ; nor where sharded updates clip
  /// gradients, for which each rank must hold all parameters.
  bool replicas = true;
  /// Micro-batches that are in memory: computed, prepared, or of the test set.
  int buffered_batches = 3;
  /// Memory of [update], [optimizer] and [checkpoint]. Empty: optimizer_elements, and what
  /// synchronous updates keep.
  UpdateBytes update_bytes = {};
};

/// One layer on a grid.
struct LayerPlan {
  std::string name = {};
  bool domain = false;  ///< split over the image's rows, else over filters
  int pr = 1;
  int pc = 1;
  double communication_seconds = 0.0;
  int cheapest_pr = 1;  ///< of all grids for this layer alone: the P_r of the least communication
};

/// One grid.
///
/// **Compute** is 6 flops per weight and output position of a sample (forward, both gradients; 4 in
/// the first layer) times B/P, at `flops` per second: every split divides the work evenly.
///
/// **Memory** of a rank is what train.memory_limit counts when such a run trains with splits like
/// those of the form (fully connected layers by samples where it has a domain), with every step's
/// batch as large as the first:
///   - its part of every parameter: the parameters, their gradients, the copy for evaluation and,
///     of several micro-batches, the sum of gradients;
///   - update_bytes, or optimizer_elements of the optimizer, and gradients that are sent as bf16
///     once more;
///   - three batches of its replica's input: two for training, one for the test set;
///   - what every layer writes, redistributed values again, and the buffers for gradients;
///   - what kernels keep: weights in the layouts that oneDNN chooses on this machine, halos,
///   gathered
///     channels, what is packed for messages; a scratchpad as large as the largest.
///
/// The largest of several micro-batches counts. Buffers of the transport come on top.
struct GridPlan {
  Strategy strategy = Strategy::batch;
  int pr = 1;
  int pc = 1;
  double communication_seconds = 0.0;
  std::optional<double> compute_seconds = {};  ///< none without PlanOptions::flops
  std::uint64_t bytes_per_rank = 0;
  /// Why nobody should use it; empty: usable. A rank, or one of its micro-batches, would have no
  /// sample; fewer than 16 of a layer's filters, which starves the kernels; fewer rows of the image
  /// than the halo (fully connected layers are not checked, the form counts them as 1x1); or too
  /// little memory.
  std::string refused = {};
  std::vector<LayerPlan> layers = {};

  [[nodiscard]] double seconds() const noexcept {
    return communication_seconds + compute_seconds.value_or(0.0);
  }
};

/// The grids of a strategy: all P_r x P_c = P with P_c <= B for `grid` and `integrated`, by rising
/// P_r; the one grid of the others. Throws std::invalid_argument where an option is impossible.
[[nodiscard]] RONDO_TRAIN_API std::vector<GridPlan> plan(const Model& model, Strategy strategy,
                                                         const PlanOptions& options);

/// Brings usable grids before refused ones, and the fastest first; equal ones by strategy and P_r.
RONDO_TRAIN_API void rank(std::vector<GridPlan>& plans);

/// The job of a run of `experiment` with `model`, as far as the configuration says it: ranks and
/// costs are those of PlanOptions, and a data set is known by its name alone. Throws ConfigError,
/// as training would, where a choice is impossible for `model`.
[[nodiscard]] RONDO_TRAIN_API PlanOptions plan_options(const Experiment& experiment,
                                                       const Model& model);

}  // namespace rondo::train
