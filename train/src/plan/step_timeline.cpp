// A step's layers one after another, forward and back, beside its reductions, in the buckets of the
// runtime, from the output side on.

#include "plan/step_timeline.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <vector>

#include <rondo/sync/buckets.hpp>

#include "plan/closed_forms.hpp"
#include "plan/layer_costs.hpp"

namespace rondo::train {
namespace {

// The weight gradients of a layer.
struct Gradients {
  std::size_t layer = 0;
  double elements = 0.0;
  double sent = 0.0;  // elements of fp32 that are as long as what is sent
  ProcessGroup ranks = {};
};

// In the order of forward.
std::vector<Gradients> gradients_of(const GridJob& job, const FoundLayouts& found) {
  std::vector<Gradients> all;
  for (std::size_t i = 0; i < found.layers.size(); ++i) {
    const JobLayer layer = layer_of(job, i);
    if (!layer.has_split()) continue;
    const LayerSplit& split = found.layers[i].option.split;
    all.push_back({.layer = i,
                   .elements = weights_of_rank(job, layer, split),
                   .sent = reduced_elements(job, layer, split),
                   .ranks = reduced_over(job, split)});
  }
  return all;
}

// A group is the number of the first layer that is reduced over the same ranks.
int group_of(const ProcessGroup& ranks, const std::vector<Gradients>& all) {
  const auto first = std::ranges::find_if(all, [&](const Gradients& each) {
    return each.ranks.size == ranks.size && each.ranks.stride == ranks.stride;
  });
  return static_cast<int>(first - all.begin());
}

}  // namespace

std::vector<GradientBucket> gradient_buckets(const GridJob& job, const FoundLayouts& found) {
  const std::vector<Gradients> gradients = gradients_of(job, found);
  std::vector<sync::LayerGradients> layers;
  for (const Gradients& layer : gradients) {
    layers.push_back({.elements = static_cast<std::size_t>(std::llround(layer.elements)),
                      .group = group_of(layer.ranks, gradients)});
  }
  const auto limits = sync::BucketLimits::of(static_cast<std::size_t>(job.options.bucket_bytes));
  std::vector<GradientBucket> buckets;
  for (const auto& [first, last] : sync::plan_buckets(layers, limits)) {
    buckets.push_back({.layer = gradients[first].layer, .ranks = gradients[first].ranks});
    for (std::size_t i = first; i < last; ++i) {
      buckets.back().bytes += element_bytes * gradients[i].sent;
    }
  }
  return buckets;
}

double bucketed_seconds(const GridJob& job, const FoundLayouts& found) {
  const std::vector<GradientBucket> buckets = gradient_buckets(job, found);
  double now = found.closing;
  for (const ChosenOption& layer : found.layers) {
    now +=
        layer.redistribution / 2.0 + layer.option.exchange.forward + layer.option.compute.forward;
  }
  double network = 0.0;  // when the last bucket that was sent has arrived
  auto next = buckets.begin();
  for (std::size_t i = found.layers.size(); i-- > 0;) {
    const ChosenOption& layer = found.layers[i];
    const ExchangeSeconds& exchange = layer.option.exchange;
    const WorkSeconds& compute = layer.option.compute;
    now += exchange.dy + compute.backward_weights;
    if (next != buckets.end() && next->layer == i) {
      network = std::max(network, now) +
                allreduce_seconds(next->bytes / element_bytes, next->ranks, job.options);
      ++next;
    }
    now += exchange.exposed_halo(compute.backward_weights) + compute.backward_data + exchange.dx +
           layer.redistribution / 2.0;
  }
  return std::max(now, network);
}

}  // namespace rondo::train
