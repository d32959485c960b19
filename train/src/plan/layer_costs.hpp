#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <vector>

#include <rondo/train/compute_costs.hpp>
#include <rondo/train/partition.hpp>

#include "plan/grid_job.hpp"

namespace rondo::train {

// Fewer channels or filters starve a kernel: one vector of AVX-512, oneDNN's block of channels.
constexpr std::int64_t least_channels = 16;

// The work of the busiest rank in a layer that is split so; a layer that follows has the split of
// what it reads.
[[nodiscard]] LocalWork local_work(const GridJob& job, const JobLayer& layer,
                                   const LayerSplit& split);

// The terms of plan_best.hpp for a layer that is split so and reads `x`. Layers that follow have
// the kind of split of what they read.

// The collectives of activations and of their gradients, of halos and of statistics. Nothing is
// computed meanwhile, but for the halo of dy.
struct LayerExchanges {
  MessageCost forward = {};
  MessageCost dy = {};       // gathered before backward-weights
  MessageCost halo_dy = {};  // beside backward-weights, before backward-data
  MessageCost dx = {};       // behind backward-data

  [[nodiscard]] double seconds() const noexcept {
    return forward.seconds + dy.seconds + halo_dy.seconds + dx.seconds;
  }

  // What is left of the halo of dy behind a backward-weights that takes so long.
  [[nodiscard]] double exposed_halo(double weights) const noexcept {
    return std::max(0.0, halo_dy.seconds - weights);
  }
};

[[nodiscard]] LayerExchanges exchanges_of(const GridJob& job, const JobLayer& layer,
                                          const LayerSplit& split);

// The ranks that hold the same weights of a layer; how many weights a rank has; and the elements of
// fp32 that are as long as their gradients when they are sent.
[[nodiscard]] ProcessGroup reduced_over(const GridJob& job, const LayerSplit& split);
[[nodiscard]] double weights_of_rank(const GridJob& job, const JobLayer& layer,
                                     const LayerSplit& split);
[[nodiscard]] double reduced_elements(const GridJob& job, const JobLayer& layer,
                                      const LayerSplit& split);

// The allreduce of weight gradients over all that hold the same weights.
[[nodiscard]] MessageCost reduction_cost(const GridJob& job, const JobLayer& layer,
                                         const LayerSplit& split);

// Into how many parts the layer's parameters are cut.
[[nodiscard]] int weight_parts(const GridJob& job, const LayerSplit& split);

// One way in which a layer can run: its input layout, its output layout and its cost.
struct LayerOption {
  int x = 0;  // numbers of layouts
  int y = 0;
  LayerSplit split = {};  // of a layer that follows: its input's
  WorkSeconds compute = {};
  LayerExchanges exchange = {};
  double reduction = 0.0;      // seconds
  double port = 0.0;           // seconds of it that exchanges take in backward, if they are counted
  std::uint64_t elements = 0;  // of a rank's memory, but for gradients of values
  std::uint64_t gradient = 0;  // of the largest of those
};

// The time of a training step whose layers up to some are known. Forward goes through them from the
// first, backward from the last; the reduction of a layer's weight gradients begins when they are
// final and the one before has ended, while backward goes on. Backward-data waits for the halo of
// dy, which travels beside backward-weights. Half of a redistribution belongs to either direction.
//
// Layers behind would only put their own times in front. So the step is as long as one of two ways,
// whichever takes longer: all the layers' work, or forward up to the moment when the network gets
// something to do, and then nothing but reductions; where ports are counted, exchanges as well.
// Both only grow with more layers.
//
// The last of several passes, one for each micro-batch, reduces; those before it stand in front.
struct StepEnd {
  double end = 0.0;      // seconds of the step
  double network = 0.0;  // forward, and all at once that the network does in backward

  // With one layer more, behind those that are known; its costs are those of one pass.
  [[nodiscard]] StepEnd with(const LayerOption& layer, double redistribution,
                             int passes) const noexcept {
    const double moved = redistribution / 2.0;
    const double forward = moved + layer.exchange.forward.seconds + layer.compute.forward;
    const double weights = layer.exchange.dy.seconds + layer.compute.backward_weights;
    const double data = layer.exchange.exposed_halo(layer.compute.backward_weights) +
                        layer.compute.backward_data + layer.exchange.dx.seconds + moved;
    // The infinite time of a kernel that takes forever must not be multiplied by 0.
    const double before = passes == 1 ? 0.0 : (passes - 1) * (forward + weights + data);
    return {.end = std::max(end + before + forward + weights + data,
                            network + before + forward + weights + layer.reduction),
            .network = network + before + forward + layer.reduction + layer.port};
  }
};

// All layouts that a value can have on a grid; a layout's number is its index here.
[[nodiscard]] std::vector<ValueLayout> possible_layouts(const GridJob& job);

// Every rank needs whole logits of its samples: the layout to which those that lie otherwise are
// redistributed.
[[nodiscard]] std::optional<int> closing_layout(int logits,
                                                const std::vector<ValueLayout>& layouts);

// Every way in which the kernels are not starved, and every rank has something to do. Empty: none.
[[nodiscard]] std::vector<LayerOption> options_of(const GridJob& job, const JobLayer& layer,
                                                  const std::vector<ValueLayout>& layouts,
                                                  const ComputeCosts& costs);

}  // namespace rondo::train
