#include "plan/backward.hpp"

#include <rondo/train/parameters.hpp>
#include <rondo/train/scaling.hpp>

#include "layers/layer_type.hpp"

namespace rondo::train {

Backward backward_of(const Model& model, std::int64_t samples, const ComputeCosts& costs) {
  const std::vector<LocalWork> work = unsplit_work(model, samples);
  std::vector<WorkSeconds> seconds;
  Backward backward;
  for (const LocalWork& layer : work) {
    seconds.push_back(costs.seconds(layer));
    backward.end += seconds.back().forward;
  }
  const std::vector<ParameterBlock> blocks = layout_of(model).blocks;
  // From the last layer to the first, as backward goes.
  std::size_t block = blocks.size();
  backward.blocks.resize(block);
  for (std::size_t i = work.size(); i-- > 0;) {
    const bool learns = block > 0 && blocks[block - 1].name == work[i].layer;
    // Batch norm has one pass for both.
    const bool at_once = work[i].kind->traits().batch_statistics;
    backward.end += seconds[i].backward_weights;
    if (at_once) backward.end += seconds[i].backward_data;
    if (learns) {
      --block;
      backward.blocks[block] = {backward.end, blocks[block].size};
    }
    if (!at_once) backward.end += seconds[i].backward_data;
  }
  return backward;
}

}  // namespace rondo::train
