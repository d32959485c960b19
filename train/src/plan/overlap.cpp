#include "plan/overlap.hpp"

#include <algorithm>

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
  const std::vector<ParameterBlock> groups = layout_of(model).blocks;
  std::size_t group = groups.size();
  backward.groups.resize(group);
  for (std::size_t i = work.size(); i-- > 0;) {
    const bool learns = group > 0 && groups[group - 1].name == work[i].layer;
    // Batch norm has one pass for both.
    const bool at_once = work[i].kind->traits().batch_statistics;
    backward.end += seconds[i].backward_weights;
    if (at_once) backward.end += seconds[i].backward_data;
    if (learns) {
      --group;
      backward.groups[group] = {backward.end, groups[group].size};
    }
    if (!at_once) backward.end += seconds[i].backward_data;
  }
  return backward;
}

double reductions_end(const Backward& backward, std::size_t first, std::size_t bucket_words,
                      const Allreduce& allreduce) {
  double end = 0.0;
  std::size_t words = 0;  // that wait for more to go with
  for (std::size_t group = backward.groups.size(); group-- > first;) {
    words += backward.groups[group].words;
    if (words < bucket_words && group > first) continue;
    end = std::max(end, backward.groups[group].seconds) + allreduce(static_cast<double>(words));
    words = 0;
  }
  return end;
}

}  // namespace rondo::train
