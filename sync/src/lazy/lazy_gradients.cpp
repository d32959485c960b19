#include "lazy/lazy_gradients.hpp"

#include <algorithm>
#include <utility>

#include <rondo/transport/communicator.hpp>
#include <rondo/transport/world.hpp>

#include "flat/flat.hpp"
#include "lazy/check_lazy.hpp"

namespace rondo::sync {
namespace {

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
      last_(&replica.world->arena()) {
  if (!layers_.empty()) ranks_ = layers_.front().groups.slice;
  watch(probes_of(options));
}

void LazyGradients::watch(std::span<const Probe> probes) {
  std::size_t end = 0;
  for (const Probe& probe : probes) {
    const std::size_t layer = layer_of(layers_, probe);
    if (watched_.empty() || watched_.back().layer != layer) ++watched_layers_;
    watched_.push_back({layer, probe.offset, probe.size, end});
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
    allreduce(last_, last_request_, counters);
    last_posted_ = true;
  }
  if (!sums_posted_ && missing_ == 0) {
    allreduce(sums_, sums_request_, counters);
    sums_posted_ = true;
  }
}

void LazyGradients::allreduce(std::span<float> values, transport::Request& request,
                              SchemeCounters& counters) {
  request = ranks_->allreduce(values);
  ++counters.collectives;
  counters.global_bytes += values.size_bytes();
}

void LazyGradients::wait() {
  last_request_.wait();
  sums_request_.wait();
}

WindowTests LazyGradients::test(std::int64_t iterations) const {
  WindowTests tests{{}, watched_.size(), watched_.size()};
  if (iterations == 1) return tests;  // f is G
  for (const Watched& probe : watched_) {
    tests.last_probe = test_probe(std::span(last_).subspan(probe.last_offset, probe.size),
                                  std::span(sums_).subspan(probe.offset, probe.size), iterations);
    if (!tests.last_probe.angle) --tests.angles_passed;
  }
  return tests;
}

void LazyGradients::reduce(std::span<float> values) {
  if (reduces()) ranks_->allreduce(values).wait();
}

bool LazyGradients::reduces() const noexcept { return !sums_.empty() && ranks_->size() > 1; }

}  // namespace rondo::sync
