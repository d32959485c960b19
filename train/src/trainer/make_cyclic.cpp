#include "trainer/scheme_makers.hpp"

#include <string>
#include <utility>

#include <rondo/sync/cyclic.hpp>

namespace rondo::train {
namespace {

sync::PushScaling scaling_of(const std::string& name) {
  if (name == "per_sample") return sync::PushScaling::per_sample;
  if (name == "mean") return sync::PushScaling::mean;
  if (name == "sum") return sync::PushScaling::sum;
  refuse_choice("update.scaling", name, "per_sample, mean, sum");
}

}  // namespace

Scheme make_cyclic(const Experiment& experiment, SchemeParts& parts,
                   const SharedOptimizer& optimizer) {
  const Experiment::Update& update = experiment.update;
  sync::CyclicOptions options{
      .delay = update.delay == "fixed" ? sync::Delay::fixed : sync::Delay::dynamic,
      .scaling = scaling_of(update.scaling),
      .local_step = update.local_step,
      .minibatch_cap = static_cast<int>(update.minibatch_cap),
      .when_empty = update.when_empty == "skip" ? sync::WhenEmpty::skip : sync::WhenEmpty::wait,
      .clip_norm = experiment.optimizer.clip_norm,
      .epoch_samples = parts.epoch_samples,
      .total_samples = parts.total_samples,
      .script = std::move(parts.script)};
  if (Traces* const traces = parts.traces) {
    options.on_push = [traces](const sync::Push& push) { traces->pushes.push_back(push); };
  }
  return sync::make_cyclic(parts.replica, optimizer, options);
}

}  // namespace rondo::train
