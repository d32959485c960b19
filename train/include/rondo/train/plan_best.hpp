#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <rondo/train/compute_costs.hpp>
#include <rondo/train/experiment.hpp>
#include <rondo/train/export.hpp>
#include <rondo/train/model.hpp>
#include <rondo/train/model_benchmark.hpp>
#include <rondo/train/partition.hpp>
#include <rondo/train/plan.hpp>

namespace rondo::train {

// The split of each layer that trains a model fastest on P ranks: what plan.hpp evaluates for one
// split of all layers, searched layer by layer, with what it costs to change from one to the next.
// Layers are split as in Dryden, Maruyama, Moon, Benson, Snir, Van Essen (SC 2019), fully connected
// ones by the 1.5D algorithm of Gholami et al. (SPAA 2018). Nothing here runs or measures.
//
// On a grid of P = P_r x P_c every convolution and fully connected layer has a LayerSplit:
//
//     sample     P <= B
//     replica    all ranks of a replica do the same
//     space      h x w = P_r; convolutions
//     channel    p_C x p_F = P_r for convolutions: P_r x 1 is stationary-X, 1 x P_r stationary-Y;
//                outputs over P_r for fully connected layers
//     space_and_channel  t = h x w tiles, t p_C p_F = P_r; convolutions, in fp32
//
// Other layers follow the layout of their first input; a second one gets it, too. Where a layer
// reads another layout than its input has, the value is redistributed, and its gradient back: once
// where two readers want the same. The model's input is loaded as it is wanted; logits lie by
// sample or by replica.
//
// Seconds of a layer on one rank, n = B / P_c samples of a replica, p = P_r, with the collective
// c(n, g), as the transport does it: between N nodes a ring of N - 1 messages, each to the
// neighbour; where s ranks of the process group share each node
//
//     c(n, g) = [s > 1] alpha_node + beta_node m(n, s) + (N - 1) (alpha + beta n/s/N)
//
// or (N - 1) beta_port n/s/N if that is more: while one rank of a node waits, the others send. m
// are the elements that a rank copies (loads and stores) in the node's memory: n (s-1)/s of an
// allgather, n (1 + 1/s) / 2 of a reduce-scatter, of which only a share is stored.
//
// An allreduce is both, or recursive doubling between nodes: log2 N messages of all elements (two
// more where N is no power of two), each of which costs a quarter more for adding; or recursive
// halving of the n/s elements of each rank: 2 log2 N messages, (1 - 1/N) n/s beta there, a quarter
// more for adding, and as much back (and the same two messages more). Which of these follows from
// its bytes by the table that the run would have (PlanOptions::paths), whether it is the fastest or
// not. On one node it copies n elements. On several it copies n (1 + 1/s) / 2 + n,
// and what ranks do on a node and between nodes overlaps where it has several blocks. The table
// below has the first of these:
//
//     sample     2 c(|W|, P)
//     replica    2 c(|W|, P_c)
//     space      h(x) + h(dy) + 2 c(|W|, P), of pooling layers h(x) + h(dy); global average
//                pooling 2 c(n C, p)
//     X          c(n |Y|, p) + c(n |Y|, p) + 2 c(|W|/p, P_c)
//     Y          c(n |X|, p) + c(n |X|, p) + 2 c(|W|/p, P_c)
//     W          2 c(n |X|/p_C, p_F) + 2 c(n |Y|/p_F, p_C) + 2 c(|W|/p, P_c)
//     1.5D       c(n |Y|, p) + 2 c(n |X|, p) + 2 c(|W|/p, P_c)
//     tiles      X, Y or W of p = p_C p_F ranks on |X|/t and |Y|/t, halos of |X|/p_C and |Y|/p_F,
//                and 2 c(|W|/p, t P_c)
//
// |X| and |Y| are elements of a sample; biases count as nothing. Batch norm exchanges nothing but
// statistics: if ranks share them (options.batch_norm) an allreduce of 2 C + 1 doubles in forward
// and one of 2 C in backward, over the ranks of the replica that have other samples or pixels
// (replica), or over these, and then over the replicas (all). Computing or moving dx is left out
// where nobody needs it, which halves Y's terms and those of |X| in W. A redistribution takes beta
// for each element that a rank receives, of the rank that receives most, by the cuts of
// partition.hpp: among the first 16 ranks of a replica, its middle and its last. A halo h takes the
// longest of all ranks: what a rank receives from its node takes the node's alpha and beta, what it
// receives from others beta, or as long as all that goes into its node takes over the port.
// Messages from other nodes are under way together, and take alpha once; within a node alpha is the
// work of a core, and each message takes it.
//
// A step is forward, then backward from the last layer to the first. Weight gradients are reduced
// while backward goes on, one layer after another, each from when its own are final. The halo of dy
// travels while the gradients of its layer's weights are computed. Nothing else is hidden behind
// computation. Half of a redistribution belongs to either direction.
//
// In k micro-batches (options.micro_batches) n is B / P_c / k, rounded up; for exchanges of
// channels and outputs only B / k is. k passes of forward and backward follow each other, each with
// its own exchanges and redistributions, and only the last one hides reductions.

/// One convolution or fully connected layer, with all that follows its layout.
struct BestLayer {
  std::string name = {};
  LayerSplit split = {};
  double compute_seconds = 0.0;
  double exchange_seconds = 0.0;        ///< collectives of activations and halos
  double reduction_seconds = 0.0;       ///< of weight gradients
  double redistribution_seconds = 0.0;  ///< before the layer, and of the gradient behind it
};

/// The best splits on one grid.
///
/// **Memory** of a rank is that of GridPlan, for these splits.
struct BestPlan {
  ProcessGrid grid = {};
  double compute_seconds = 0.0;
  double exchange_seconds = 0.0;
  double reduction_seconds = 0.0;
  double redistribution_seconds = 0.0;
  /// Seconds of a step in which backward hides what it can of the reductions. The search minimises
  /// them layer by layer. With options.bucket_bytes they are those of what it found: layers are
  /// reduced together, and where a rank's reductions and exchanges go to other nodes, their
  /// messages leave one behind the other.
  double overlapped_seconds = 0.0;
  /// The optimizer's pass of the rank that updates most; it is in overlapped_seconds. Grids are
  /// compared with it, the splits on one grid are not.
  double update_seconds = 0.0;
  std::uint64_t bytes_per_rank = 0;
  std::string refused = {};  ///< why there are no splits for this grid; empty: there are
  std::vector<BestLayer> layers = {};
  /// By layer of the model; a layer without weights has the split of what it reads.
  std::vector<LayerSplit> splits = {};

  [[nodiscard]] double communication_seconds() const noexcept {
    return exchange_seconds + reduction_seconds + redistribution_seconds;
  }
  /// If nothing were hidden.
  [[nodiscard]] double seconds() const noexcept {
    return compute_seconds + communication_seconds();
  }
};

/// The best splits on every grid with P_c <= B, the fastest grid first, refused ones last.
///
/// Dynamic programming over the model's layers in order. Its state is the layout of every value
/// that is still to be read (two in a residual block), so branches are searched together. A state
/// keeps trade-offs of the step's time, what there is to reduce and, with a limit, bytes; at most
/// 128 of them: where there are more, something faster may be missed. Else no other splits take
/// less time, layer by layer, but for values with more than two readers: of the layouts to which
/// such a one is moved, the search remembers the last. Where reductions and exchanges share a port
/// it searches twice, as if they never met there and as if they always did, and takes the splits
/// with fewer overlapped_seconds. With a memory limit the search is repeated
/// for every size that the buffers for gradients may have, as far as that can still pay. While it
/// searches it counts only what layers add one by one: (5 + optimizer_elements) x parameters, of a
/// divided optimizer's elements the rank's share, values as they lie, gradients. What is found is
/// held against the limit as a whole, and searched again with less where it exceeds it.
///
/// Never chosen: fewer than 16 local channels or filters where they are split (a layer with fewer
/// before it is split may still be split over its filters); images split into parts thinner than
/// the halo, or into none; by sample with P > B.
///
/// Two splits in space and by channel at once are considered: rows in as few parts as P_r allows,
/// and either channels or filters. All of them would make the search up to a hundred times as long.
///
/// Refused: what does not fit into memory_limit, and replicas that can be split in more than 254
/// ways.
///
/// Where P_r is no power of a prime, chains of stationary-W layers are considered only as long as
/// blocks lie as after one transposition at the most.
///
/// `options.flops` is not used. Throws std::invalid_argument where an option is impossible, and for
/// a model with more than 4 values to be read at the same time.
[[nodiscard]] RONDO_TRAIN_API std::vector<BestPlan> best_plans(const Model& model,
                                                               const PlanOptions& options,
                                                               const ComputeCosts& costs);

/// As a configuration says it: "sample", "replica", "height=A width=B", "channel=C filter=D", or
/// those of all four parts that are more than 1.
[[nodiscard]] RONDO_TRAIN_API std::string split_text(const LayerSplit& split);

/// The keys of [grid] that train by `plan`, with a split for each layer.
[[nodiscard]] RONDO_TRAIN_API Experiment::Grid grid_keys(const BestPlan& plan);

/// The same as a section of a configuration.
[[nodiscard]] RONDO_TRAIN_API std::string grid_section(
    const BestPlan& plan, BatchNormScope batch_norm = BatchNormScope::rank);

/// All that the ranks of `plan` compute in one micro-batch: an entry for each layer of the model,
/// of the rank that has most to do. Empty for a refused plan.
[[nodiscard]] RONDO_TRAIN_API std::vector<LocalWork> work_of(const Model& model,
                                                             const PlanOptions& options,
                                                             const BestPlan& plan);

}  // namespace rondo::train

namespace rondo::tensor {
class Engine;
}

namespace rondo::train {

/// Times of layers that were measured on this machine, kept in a file for later.
///
/// **A measurement** times each kernel alone, by the benchmark of model_benchmark.hpp, on memory
/// that stays warm. It takes only a part of many samples: as many as make about 1e9 flops (a fully
/// connected layer: at least 32), a power of two. Time is assumed to grow with the samples.
///
/// **A guess** replaces what was not measured, at the fastest rate that the same layer had: flops
/// of layers with weights, elements of others. A layer without any measurement counts as free:
/// nothing is known about it.
///
/// **The file** is an object of JSON. An entry is found by tensor::kernel_set(), processor, threads
/// and the layer's numbers, and the optimizer and the size of the model where that is a part of
/// what was measured; so one file does for several machines. It is written aside and renamed;
/// entries that others have written meanwhile are kept. A file that cannot be understood is
/// replaced.
class RONDO_TRAIN_API ComputeTable final : public ComputeCosts {
 public:
  /// Reads `file`, if it exists; empty: nothing is kept. Kernels have so many threads, activations
  /// are of `type`, updates as `update` says; throws std::runtime_error where the CPU does not
  /// compute with that type.
  explicit ComputeTable(int threads, std::filesystem::path file = {},
                        tensor::DataType type = tensor::DataType::f32, UpdateBenchmark update = {});
  ~ComputeTable() override;

  [[nodiscard]] WorkSeconds seconds(const LocalWork& work) const override;
  /// By the time of a parameter in the last measure_update() or measure_step(); 0 before one.
  [[nodiscard]] double update_seconds(std::size_t parameters) const override;

  /// Has just this shape been measured?
  [[nodiscard]] bool knows(const LocalWork& work) const;
  /// Measures it unless it is known, which takes up to some seconds. A layer for which oneDNN has
  /// only its reference kernel takes forever: infinity.
  void measure(const LocalWork& work);
  /// Measures the optimizer's pass over a model of so many parameters, unless it is known.
  void measure_update(std::size_t parameters);
  /// Measures whole training steps of `model` on so many samples and on four times as many (at most
  /// `most_samples`), unless they are known, which takes some seconds. From then on the times of
  /// layers are multiplied by what such steps take beside their layers alone: caches are colder
  /// there, weights are packed, and some layers have no benchmark. A part of that is the same for
  /// any number of samples.
  void measure_step(const Model& model, std::int64_t samples, std::int64_t most_samples);

  /// How many shapes this table has measured itself.
  [[nodiscard]] int measurements() const noexcept { return measurements_; }
  /// Throws std::filesystem::filesystem_error or std::runtime_error that names the file.
  void save() const;

 private:
  [[nodiscard]] std::string key_of(const LocalWork& work) const;
  [[nodiscard]] std::string update_key() const;

  int threads_;
  tensor::DataType type_;
  UpdateBenchmark update_;
  std::filesystem::path file_;
  std::string machine_;
  std::map<std::string, WorkSeconds> times_;  ///< by key
  std::map<std::string, WorkSeconds> rates_;  ///< by layer, seconds per flop or element: the least
  std::size_t updated_ = 0;                   ///< parameters that an update was measured with
  std::unique_ptr<tensor::Engine> engine_;
  [[nodiscard]] double step_to_layers(const Model& model, std::int64_t samples);
  [[nodiscard]] double in_a_step(const LocalWork& work) const;

  /// The times of a layer on n samples are multiplied by per_sample_ + fixed_ / n.
  double per_sample_ = 1.0;
  double fixed_ = 0.0;
  int measurements_ = 0;
};

/// Where measured times are kept: $XDG_CACHE_HOME/rondo/kernel-times.json, or that in ~/.cache;
/// empty if neither folder is known.
[[nodiscard]] RONDO_TRAIN_API std::filesystem::path kernel_times_file();

/// best_plans() by a table that measures what the search needs, and no more: each layer as it is
/// without a split and, without a memory limit, a whole step of those; then whatever the best plan
/// would have its ranks run, until that plan has been measured whole, or the table has measured
/// `most_measurements` shapes. Splits seldom raise a kernel's rate, so guesses are low and nothing
/// better is missed by much.
[[nodiscard]] RONDO_TRAIN_API std::vector<BestPlan> measured_best_plans(const Model& model,
                                                                        const PlanOptions& options,
                                                                        ComputeTable& table,
                                                                        int most_measurements);

}  // namespace rondo::train
