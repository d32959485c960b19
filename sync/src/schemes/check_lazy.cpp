#include "schemes/check_lazy.hpp"

#include <stdexcept>
#include <string>

#include "base/whole_layers.hpp"

namespace rondo::sync {
namespace {

void check_probes(std::span<const Layer> layers, std::span<const Probe> probes, bool in_slices) {
  std::size_t end = 0;
  for (const Probe& probe : probes) {
    static_cast<void>(layer_of(layers, probe));
    if (probe.size == 0 && !in_slices) {
      throw std::invalid_argument("lazy: the probe at " + std::to_string(probe.offset) +
                                  " is empty");
    }
    if (probe.offset < end) {
      throw std::invalid_argument("lazy: the probe at " + std::to_string(probe.offset) +
                                  " overlaps the one before it, or is out of order");
    }
    end = probe.offset + probe.size;
  }
}

}  // namespace

std::span<const Layer> checked_lazy_layers(const Replica& replica, const LazyOptions& options) {
  if (options.lazy_layers > replica.layers.size()) {
    throw std::invalid_argument("lazy: " + std::to_string(options.lazy_layers) +
                                " layers cannot be lazy, there are " +
                                std::to_string(replica.layers.size()));
  }
  if (options.max_interval < 0) {
    throw std::invalid_argument("lazy: max_interval is negative; 0 means no cap");
  }
  const auto layers = std::span<const Layer>(replica.layers).first(options.lazy_layers);
  const bool in_slices = replica.slices.over != nullptr;
  if (!in_slices) expect_whole_layers("lazy", replica, layers);
  check_probes(layers, options.probes, in_slices);
  if (!layers.empty() && options.probes.empty()) {
    throw std::invalid_argument(
        "lazy: no probe was given; the interval is judged by the weights of a lazy layer");
  }
  return layers;
}

std::size_t layer_of(std::span<const Layer> layers, const Probe& probe) {
  for (std::size_t i = 0; i < layers.size(); ++i) {
    const std::size_t end = layers[i].offset + layers[i].size;
    const bool begins_within = probe.offset >= layers[i].offset && probe.offset < end;
    const bool fits = begins_within && probe.size > 0 && probe.size <= end - probe.offset;
    if (fits || (probe.size == 0 && probe.offset == layers[i].offset)) return i;
  }
  throw std::invalid_argument("lazy: the probe of " + std::to_string(probe.size) + " values at " +
                              std::to_string(probe.offset) + " lies within no lazy layer");
}

void check_lazy_optimizer(const Optimizer& optimizer) {
  if (optimizer.ignores_scale()) {
    throw std::invalid_argument(
        "lazy: this optimizer ignores the scale of gradients, so that the sum over a window would "
        "do no more than one iteration's gradient; use SGD, with or without momentum");
  }
}

}  // namespace rondo::sync
