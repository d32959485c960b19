#include <string>
#include <utility>

#include <rondo/sync/lazy.hpp>

#include "trainer/scheme_makers.hpp"

namespace rondo::train {
namespace {

sync::LazyController controller_of(const std::string& name) {
  if (name == "probe") return sync::LazyController::probe;
  if (name == "every_layer") return sync::LazyController::every_layer;
  refuse_choice("update.controller", name, "probe, every_layer");
}

}  // namespace

Scheme make_lazy(const Experiment& experiment, SchemeParts& parts,
                 const SharedOptimizer& optimizer) {
  const Experiment::Update& update = experiment.update;
  const auto bucket_bytes = static_cast<std::size_t>(update.bucket_bytes);
  sync::LazyOptions options{.lazy_layers = parts.lazy.layers,
                            .probes = std::move(parts.lazy.probes),
                            .controller = controller_of(update.controller),
                            .max_interval = update.max_interval,
                            .bucket_bytes = bucket_bytes,
                            .last_bucket_bytes = bucket_bytes / 4};
  if (Traces* const traces = parts.traces) {
    options.on_window = [traces](const sync::LazyWindow& window) {
      traces->windows.push_back(window);
    };
  }
  return sync::make_lazy(parts.replica, optimizer, options);
}

}  // namespace rondo::train
