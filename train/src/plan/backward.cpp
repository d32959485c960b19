// When the gradient of each parameter block is final, in a step of one rank that does not
// communicate: the seconds of its layers, added up in the order in which forward and backward run
// them. The planner and the predictions of schemes need these times to tell what of a reduction
// backward hides.

#include "plan/backward.hpp"

#include <rondo/train/parameters.hpp>
#include <rondo/train/scaling.hpp>

#include "layers/layer_type.hpp"

namespace rondo::train {

Backward backward_of(const Model& model, std::int64_t samples, const ComputeCosts& costs) {
  const std::vector<LocalWork> work = unsplit_work(model, samples);
  std::vector<WorkSeconds> seconds;
  Backward backward;
  const std::vector<ParameterBlock> blocks = layout_of(model).blocks;
  backward.blocks.resize(blocks.size());
  std::size_t block = 0;
  for (const LocalWork& layer : work) {
    if (block < blocks.size() && blocks[block].name == layer.layer) {
      backward.blocks[block++].needed = backward.end;
    }
    seconds.push_back(costs.seconds(layer));
    backward.end += seconds.back().forward;
  }
  // From the last layer to the first, as backward goes.
  for (std::size_t i = work.size(); i-- > 0;) {
    const bool learns = block > 0 && blocks[block - 1].name == work[i].layer;
    // Batch norm has one pass for both.
    const bool at_once = work[i].kind->traits().batch_statistics;
    backward.end += seconds[i].backward_weights;
    if (at_once) backward.end += seconds[i].backward_data;
    if (learns) {
      --block;
      backward.blocks[block].seconds = backward.end;
      backward.blocks[block].elements = blocks[block].size;
    }
    if (!at_once) backward.end += seconds[i].backward_data;
  }
  return backward;
}

MicroBatches micro_batches_of(std::int64_t samples, std::int64_t count) {
  const std::int64_t more = samples % count;
  if (more == 0) return {.large = samples / count, .large_count = count};
  return {.large = samples / count + 1,
          .large_count = more,
          .small = samples / count,
          .small_count = count - more};
}

Backward backward_of_step(const Model& model, std::int64_t samples, std::int64_t micro_batches,
                          const ComputeCosts& costs) {
  const MicroBatches parts = micro_batches_of(samples, micro_batches);
  Backward step = backward_of(model, parts.large, costs);
  if (micro_batches == 1) return step;
  double before_last = static_cast<double>(parts.large_count - 1) * step.end;
  if (parts.small_count > 0) {
    const Backward first = backward_of(model, parts.small, costs);
    before_last += static_cast<double>(parts.small_count) * first.end;
    for (std::size_t i = 0; i < step.blocks.size(); ++i) {
      step.blocks[i].needed = first.blocks[i].needed;
    }
  }
  for (FinalGradients& block : step.blocks) block.seconds += before_last;
  step.end += before_last;
  return step;
}

}  // namespace rondo::train
