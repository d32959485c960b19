// How much memory a scheme will take, in closed form: a limit can refuse it before it is made, and
// a planner can count it for ranks that do not exist. Each function follows the arrays that the
// constructor of its scheme makes, in their order, or those that its save() writes; tests compare
// it with what is allocated, and with what is saved.

#include <rondo/sync/scheme_memory.hpp>

#include <algorithm>
#include <cstdint>

#include <rondo/transport/element.hpp>

#include "base/reductions.hpp"

namespace rondo::sync {
namespace {

/// StatisticsMean, which every scheme has.
std::size_t mean_of_statistics(const ReplicaSizes& sizes) {
  return sizes.statistics * sizeof(double);
}

/// Where values are rounded to be sent.
std::size_t rounded(std::size_t elements, transport::ElementType type) {
  return type == transport::ElementType::bf16 ? elements * sizeof(transport::Bfloat16) : 0;
}

std::size_t reduced_parameters(const ReplicaSizes& sizes) {
  std::size_t elements = 0;
  for (const ReplicaSizes::Layer& layer : sizes.layers) {
    if (layer.ranks > 1) elements += layer.size;
  }
  return elements;
}

/// Parameters of the layers whose gradients are summed over windows.
std::size_t lazy_parameters(const ReplicaSizes& sizes, const LazyOptions& options) {
  std::size_t lazy = 0;
  for (std::size_t i = 0; i < std::min(options.lazy_layers, sizes.layers.size()); ++i) {
    lazy += sizes.layers[i].size;
  }
  return lazy;
}

}  // namespace

std::size_t ReplicaSizes::parameters() const noexcept {
  std::size_t elements = 0;
  for (const Layer& layer : layers) elements += layer.size;
  return elements;
}

std::size_t memory_of(const ReplicaSizes& sizes, const SynchronousOptions& options) {
  return rounded(reduced_parameters(sizes), options.gradient_type) + mean_of_statistics(sizes);
}

std::size_t memory_of(const ReplicaSizes& sizes, const LazyOptions& options) {
  std::size_t watched = 0;
  for (const Probe& probe : options.probes) {
    const bool adds = options.controller == LazyController::every_layer;
    watched = (adds ? watched : 0) + probe.size;
  }
  const bool is_alone = reduced_parameters(sizes) == 0;
  return bytes_of(lazy_parameters(sizes, options) + watched) + mean_of_statistics(sizes) +
         rounded(reduced_parameters(sizes) + (is_alone ? 0 : watched), options.gradient_type);
}

std::size_t memory_of(const ReplicaSizes& sizes, const KStepOptions& options) {
  const std::size_t parameters = sizes.parameters();
  const auto fragments = static_cast<std::size_t>(std::max<std::int64_t>(options.fragments, 1));
  const bool is_alone = sizes.replicas == 1;
  const auto type = is_alone ? transport::ElementType::f32 : options.average_type;
  // A mean has the weight of each fragment behind its values.
  const std::size_t mean = bytes_of(parameters + sizes.statistics + fragments);
  const bool averages_state = options.local_state == LocalState::average;
  std::size_t bytes = bytes_of(parameters) + mean + rounded(parameters, type);
  if (options.momentum.mu != 0.0F) bytes += bytes_of(parameters);
  if (averages_state) bytes += bytes_of(sizes.optimizer_state);
  if (type == transport::ElementType::bf16)
    bytes += bytes_of(parameters);  // what rounding left out
  if (options.overlap_steps > 0 && !is_alone) {
    bytes += mean + rounded(parameters, type) + bytes_of(parameters);
  }
  return bytes + mean_of_statistics(sizes);
}

std::size_t memory_of_cyclic(const ReplicaSizes& sizes, bool has_store) {
  const std::size_t store = sizes.parameters() + sizes.optimizer_state;
  return bytes_of(sizes.parameters() + (has_store ? store : 0)) + mean_of_statistics(sizes);
}

// The largest share of every layer, for each array of the state.
std::size_t sharded_state(const ReplicaSizes& sizes) {
  const std::size_t parameters = sizes.parameters();
  if (parameters == 0) return 0;
  std::size_t share = 0;
  for (const ReplicaSizes::Layer& layer : sizes.layers) {
    share += std::min(layer.size, share_of(layer.size, static_cast<std::size_t>(layer.ranks)));
  }
  return share * (sizes.optimizer_state / parameters);
}

std::size_t saved_by(const ReplicaSizes& sizes, const SynchronousOptions& /*options*/) {
  return bytes_of(sizes.optimizer_state);
}

std::size_t saved_by(const ReplicaSizes& sizes, const LazyOptions& options) {
  return bytes_of(sizes.optimizer_state + lazy_parameters(sizes, options));
}

// While an average is under way.
std::size_t saved_by(const ReplicaSizes& sizes, const KStepOptions& options) {
  const std::size_t parameters = sizes.parameters();
  const bool is_alone = sizes.replicas == 1;
  std::size_t elements = sizes.optimizer_state + parameters;
  if (options.momentum.mu != 0.0F) elements += parameters;
  if (options.average_type == transport::ElementType::bf16 && !is_alone) elements += parameters;
  if (options.overlap_steps > 0 && !is_alone) elements += 2 * parameters + sizes.statistics;
  return bytes_of(elements);
}

std::size_t saved_by_cyclic(const ReplicaSizes& sizes) {
  return bytes_of(2 * sizes.parameters() + sizes.optimizer_state);
}

}  // namespace rondo::sync
