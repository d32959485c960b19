#include "schemes/lazy_gradients.hpp"

#include <algorithm>
#include <utility>

#include <rondo/transport/world.hpp>

#include "flat/flat.hpp"
#include "schemes/check_lazy.hpp"

namespace rondo::sync {
namespace {

constexpr std::size_t products_of_probe = 3;

std::size_t elements(std::span<const Layer> layers) {
  return layers.empty() ? 0 : layers.back().offset + layers.back().size;
}

/// Those that the controller looks at.
std::span<const Probe> probes_of(const LazyOptions& options) {
  const std::span<const Probe> all = options.probes;
  return options.controller == LazyController::probe && !all.empty() ? all.last(1) : all;
}

}  // namespace

LazyGradients::LazyGradients(const Replica& replica, const LazyOptions& options)
    : replica_(replica),
      layers_(checked_lazy_layers(replica, options)),
      sums_(elements(layers_), 0.0F, &replica.world->arena()),
      last_(&replica.world->arena()),
      model_sums_(replica, products_of_probe * probes_of(options).size()) {
  for (const Layer& layer : layers_) sums_reduction_.add(*layer.groups.slice, layer.size);
  watch(probes_of(options));
  products_.resize(products_of_probe * watched_.size(), 0.0);
}

void LazyGradients::watch(std::span<const Probe> probes) {
  std::size_t end = 0;
  for (const Probe& probe : probes) {
    const std::size_t layer = layer_of(layers_, probe);
    if (watched_.empty() || watched_.back().layer != layer) ++watched_layers_;
    watched_.push_back({layer, probe.offset, probe.size, end});
    last_reduction_.add(*layers_[layer].groups.slice, probe.size);
    end += probe.size;
  }
  last_.resize(end, 0.0F);
}

void LazyGradients::begin(Role role) {
  role_ = role;
  missing_ = layers_.size();
  watched_missing_ = watched_layers_;
  last_posted_ = role.opens;  // the sums are the last gradients then
  sums_posted_ = false;
}

void LazyGradients::layer_final(std::size_t layer) {
  const auto [offset, size] = std::pair(layers_[layer].offset, layers_[layer].size);
  const std::span<const float> gradients = replica_.gradients.subspan(offset, size);
  const std::span<float> sums = std::span(sums_).subspan(offset, size);
  if (role_.opens) {
    std::ranges::copy(gradients, sums.begin());  // not 0 + g: that loses the sign of -0
  } else {
    flat::add(sums, gradients);
  }
  --missing_;
  if (!role_.closes || role_.opens) return;
  bool watched = false;
  for (const Watched& probe : watched_) {
    if (probe.layer != layer) continue;
    watched = true;
    std::ranges::copy(replica_.gradients.subspan(probe.offset, probe.size),
                      std::span(last_).subspan(probe.last_offset).begin());
  }
  if (watched) --watched_missing_;
}

void LazyGradients::post(SchemeCounters& counters) {
  if (!role_.closes || !reduces()) return;
  if (!last_posted_ && watched_missing_ == 0) {
    last_reduction_.post(last_, counters);
    last_posted_ = true;
  }
  if (!sums_posted_ && missing_ == 0) {
    sums_reduction_.post(sums_, counters);
    sums_posted_ = true;
  }
}

void LazyGradients::wait() {
  last_reduction_.wait();
  sums_reduction_.wait();
}

WindowTests LazyGradients::test(std::int64_t iterations) {
  WindowTests tests{{}, watched_.size(), watched_.size()};
  if (iterations == 1) return tests;  // f is G
  measure();
  for (std::size_t i = 0; i < watched_.size(); ++i) {
    const double* products = &products_[products_of_probe * i];
    tests.last_probe = test_probe({products[0], products[1], products[2]}, iterations);
    if (!tests.last_probe.angle) --tests.angles_passed;
  }
  return tests;
}

// In the order of ProbeProducts; of all probes at once, as ranks may have to meet for it.
void LazyGradients::measure() {
  auto next = products_.begin();
  for (const Watched& probe : watched_) {
    const auto last = std::span<const float>(last_).subspan(probe.last_offset, probe.size);
    const auto sum = std::span<const float>(sums_).subspan(probe.offset, probe.size);
    *next++ = model_sums_.own_dot(last, sum, probe.offset);
    *next++ = model_sums_.own_dot(last, last, probe.offset);
    *next++ = model_sums_.own_dot(sum, sum, probe.offset);
  }
  model_sums_.add_up(products_);
}

void LazyGradients::reduce(std::span<float> values) {
  sums_reduction_.post(values);
  sums_reduction_.wait();
}

void LazyGradients::reduce(std::span<float> values, SchemeCounters& counters) {
  sums_reduction_.post(values, counters);
  sums_reduction_.wait();
}

bool LazyGradients::reduces() const noexcept { return sums_reduction_.reduces(); }

}  // namespace rondo::sync
