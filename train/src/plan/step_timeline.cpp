// A step's layers one after another, forward and back, beside its reductions. The buckets are those
// of sync (plan_buckets() there), from the output side on.

#include "plan/step_timeline.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <ranges>
#include <vector>

#include "plan/closed_forms.hpp"
#include "plan/layer_costs.hpp"

namespace rondo::train {
namespace {

// The weight gradients of a layer, as they are sent.
struct Gradients {
  std::size_t layer = 0;
  double bytes = 0.0;
  ProcessGroup ranks = {};
};

bool same(const ProcessGroup& a, const ProcessGroup& b) {
  return a.size == b.size && a.stride == b.stride;
}

// From the output side to the input side.
std::vector<Gradients> gradients_of(const GridJob& job, const FoundLayouts& found) {
  std::vector<Gradients> all;
  for (std::size_t i = found.layers.size(); i-- > 0;) {
    const JobLayer layer = layer_of(job, i);
    if (!layer.has_split()) continue;
    const LayerSplit& split = found.layers[i].option.split;
    all.push_back({.layer = i,
                   .bytes = element_bytes * reduced_elements(job, layer, split),
                   .ranks = reduced_over(job, split)});
  }
  return all;
}

// How many of the input side's layers go together in the last bucket.
std::size_t layers_of_last_bucket(const std::vector<Gradients>& gradients, double most_bytes) {
  std::size_t count = 0;
  double bytes = 0.0;
  for (const Gradients& layer : gradients | std::views::reverse) {
    bytes += layer.bytes;
    if (bytes > most_bytes || !same(layer.ranks, gradients.back().ranks)) break;
    ++count;
  }
  return count;
}

}  // namespace

std::vector<GradientBucket> gradient_buckets(const GridJob& job, const FoundLayouts& found) {
  const std::vector<Gradients> gradients = gradients_of(job, found);
  const auto bucket_bytes = static_cast<double>(job.options.bucket_bytes);
  const std::size_t last = gradients.size() - layers_of_last_bucket(gradients, bucket_bytes / 4);
  std::vector<GradientBucket> buckets;
  bool open = false;
  for (std::size_t i = 0; i < gradients.size(); ++i) {
    const Gradients& layer = gradients[i];
    if (!open || layer.bytes >= bucket_bytes || i == last ||
        !same(layer.ranks, buckets.back().ranks)) {
      buckets.push_back({.ranks = layer.ranks});
    }
    buckets.back().layer = layer.layer;
    buckets.back().bytes += layer.bytes;
    open = buckets.back().bytes < bucket_bytes;
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
