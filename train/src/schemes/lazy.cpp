// The scheme lazy from [update]. Its layers are chosen by number, or by a measurement: those
// layers, from the input side on, whose reduction the backward pass is too short to hide.

#include "schemes/lazy.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include <rondo/sync/buckets.hpp>
#include <rondo/sync/lazy.hpp>
#include <rondo/transport/communicator.hpp>
#include <rondo/transport/world.hpp>

#include "layers/layer_type.hpp"
#include "schemes/make_scheme.hpp"

namespace rondo::train {
namespace {

/// A convolution that can be lazy, and how many blocks are so if it is the last one.
struct Candidate {
  std::string name = {};
  sync::Probe weights = {};
  std::size_t block = 0;
  std::size_t blocks = 0;
};

sync::Probe weights_of(const ParameterLayout& layout, const std::string& layer) {
  for (const Parameter& parameter : layout.parameters) {
    if (parameter.name == layer + ".weight") return {parameter.offset, parameter.size()};
  }
  return {};
}

/// Up to the first layer with parameters that is neither a convolution nor its batch norm. Layers
/// from the input side on: their gradients are final last, so that little of backward is left to
/// hide their reduction. A batch norm goes with its convolution.
std::vector<Candidate> candidates_of(const Model& model, const ParameterLayout& layout) {
  std::vector<Candidate> candidates;
  std::size_t block = 0;
  for (std::size_t i = 0; i < model.layers.size() && block < layout.blocks.size(); ++i) {
    const LayerSpec& layer = model.layers[i];
    if (layout.blocks[block].name != layer.name) continue;  // it learns nothing
    if (is_convolution(layer)) {
      candidates.push_back({layer.name, weights_of(layout, layer.name), block, block + 1});
    } else if (layer.kind->traits().batch_statistics && !candidates.empty()) {
      candidates.back().blocks = block + 1;
    } else {
      break;
    }
    ++block;
  }
  return candidates;
}

std::size_t count_of(const std::vector<Candidate>& candidates, const LazyLayers& choice,
                     std::size_t unhidden) {
  switch (choice.kind) {
    case LazyLayers::Kind::count:
      return static_cast<std::size_t>(choice.number);
    case LazyLayers::Kind::fraction: {
      const double share = choice.number * static_cast<double>(candidates.size());
      // A share that is not zero means at least one layer.
      return share == 0.0 ? 0 : static_cast<std::size_t>(std::max(1.0, std::round(share)));
    }
    case LazyLayers::Kind::automatic:
      break;
  }
  const auto among = std::ranges::count_if(
      candidates, [&](const Candidate& candidate) { return candidate.block < unhidden; });
  // A user who chose the scheme wants at least one lazy layer.
  return std::max<std::size_t>(1, static_cast<std::size_t>(among));
}

}  // namespace

LazyPlan plan_lazy_layers(const Model& model, const LazyLayers& choice, std::size_t unhidden) {
  return plan_lazy_layers(model, layout_of(model), choice, unhidden);
}

LazyPlan plan_lazy_layers(const Model& model, const ParameterLayout& layout,
                          const LazyLayers& choice, std::size_t unhidden) {
  const std::vector<Candidate> candidates = candidates_of(model, layout);
  const std::size_t count = count_of(candidates, choice, unhidden);
  if (count > candidates.size()) {
    throw ConfigError("update.lazy_layers: " + model.name + " has " +
                      std::to_string(candidates.size()) +
                      " convolutions that can be lazy, and not " + std::to_string(count));
  }
  LazyPlan plan;
  for (std::size_t i = 0; i < count; ++i) {
    plan.layers = candidates[i].blocks;
    plan.probes.push_back(candidates[i].weights);
    plan.names.push_back(candidates[i].name);
  }
  return plan;
}

namespace {

using Clock = std::chrono::steady_clock;

constexpr int repetitions = 4;  // the first of which warms up

double seconds_between(Clock::time_point earlier, Clock::time_point later) {
  return std::chrono::duration<double>(later - earlier).count();
}

/// Notes when the gradients of each block are final.
class Stopwatch final : public StepObserver {
 public:
  explicit Stopwatch(std::size_t blocks) : final_(blocks) {}

  void make_ready(std::size_t /*block*/) override {}
  void gradients_final(std::size_t block) override { final_[block] = Clock::now(); }
  void between_layers() override {}

  [[nodiscard]] Clock::time_point final_at(std::size_t block) const { return final_[block]; }

 private:
  std::vector<Clock::time_point> final_;
};

/// By block: the shortest time from its gradients being final to the end of backward.
std::vector<double> backward_left(Executor& executor, const Batch& batch, std::size_t blocks) {
  std::vector<double> left(blocks, std::numeric_limits<double>::max());
  Stopwatch stopwatch(blocks);
  for (int i = 0; i < repetitions; ++i) {
    static_cast<void>(executor.train(batch, stopwatch));
    const Clock::time_point end = Clock::now();
    for (std::size_t block = 0; i > 0 && block < blocks; ++block) {
      left[block] = std::min(left[block], seconds_between(stopwatch.final_at(block), end));
    }
  }
  return left;
}

/// By block: the shortest time of its allreduce, once all ranks are there.
std::vector<double> reduction_times(transport::World& world, std::span<const sync::Layer> layers,
                                    std::span<float> gradients, tensor::DataType type) {
  transport::Communicator& all = world.communicator();
  std::vector<double> times(layers.size(), std::numeric_limits<double>::max());
  for (int i = 0; i < repetitions; ++i) {
    for (std::size_t block = 0; block < times.size(); ++block) {
      const sync::Layer& layer = layers[block];
      // Else the time would be that of waiting for the slowest rank.
      all.barrier().wait();
      const Clock::time_point began = Clock::now();
      // Numbers of fp32 that are as many bytes take as long.
      const std::size_t size = layer.size * tensor::size_of(type) / sizeof(float);
      layer.groups.slice->allreduce(gradients.subspan(layer.offset, size)).wait();
      if (i > 0) times[block] = std::min(times[block], seconds_between(began, Clock::now()));
    }
  }
  return times;
}

}  // namespace

// The measurement trains some steps on a batch and undoes what they leave: statistics are put back
// and gradients cleared; no update is made. Rank 0's result counts for all, because times differ.
std::size_t measure_unhidden_layers(transport::World& world, Executor& executor, const Batch& batch,
                                    std::span<const sync::Layer> layers, const ModelState& state,
                                    tensor::DataType gradient_type) {
  const std::vector<float> statistics(state.statistics.begin(), state.statistics.end());
  const std::vector<double> left = backward_left(executor, batch, layers.size());
  std::ranges::copy(statistics, state.statistics.begin());
  std::ranges::fill(state.gradients, 0.0F);
  const std::vector<double> reduction =
      reduction_times(world, layers, state.gradients, gradient_type);
  std::array unhidden{static_cast<std::int64_t>(sync::count_unhidden_layers(left, reduction))};
  world.communicator().broadcast(std::span<std::int64_t>(unhidden), 0).wait();
  return static_cast<std::size_t>(unhidden[0]);
}

sync::LazyOptions lazy_options_of(const Experiment& experiment, const LazyPlan& plan) {
  const Experiment::Update& update = experiment.update;
  const auto bucket_bytes = static_cast<std::size_t>(update.bucket_bytes);
  return {.lazy_layers = plan.layers,
          .probes = plan.probes,
          .controller = update.controller,
          .max_interval = update.max_interval,
          .max_interval_rate = update.max_interval_rate,
          .updates_per_iteration = update.updates_per_iteration,
          .bucket_bytes = bucket_bytes,
          .last_bucket_bytes = sync::BucketLimits::of(bucket_bytes).last_bytes,
          .gradient_type = gradient_element_of(experiment)};
}

Scheme make_lazy(const Experiment& experiment, SchemeParts& parts,
                 const SharedOptimizer& optimizer) {
  sync::LazyOptions options = lazy_options_of(experiment, parts.lazy);
  if (Traces* const traces = parts.traces) {
    options.on_window = [traces](const sync::LazyWindow& window) {
      traces->windows.push_back(window);
    };
  }
  return sync::make_lazy(parts.replica, optimizer, options);
}

}  // namespace rondo::train
