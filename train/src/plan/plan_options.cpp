// The part of a planned job that follows from the configuration: a run and `rondo plan` read it
// here, so that both plan for the same job.

#include "plan/plan_options.hpp"

#include <algorithm>
#include <cstdint>
#include <vector>

#include <rondo/train/plan.hpp>
#include <rondo/transport/allreduce_paths.hpp>

#include "config/combinations.hpp"
#include "data/prefetch_queue.hpp"
#include "schemes/make_scheme.hpp"

namespace rondo::train {
namespace {

// A data set that is not read is known by its name alone.
DecodedSets usual_decoded_sets(const Experiment& experiment) {
  const bool decoded = experiment.data.name == "folder";
  return {.training = decoded, .test = decoded};
}

// Where a measurement chooses lazy layers, all possible ones count; for cyclic the first rank of a
// node counts.
UpdateBytes update_bytes_of(const Experiment& experiment, const Model& model) {
  const bool windows = scheme_of(experiment.update).windows;
  const LazyLayers lazy = windows ? lazy_layers_of(experiment) : LazyLayers{};
  if (windows) static_cast<void>(plan_lazy_layers(model, lazy));  // refuses
  return [experiment, model, windows, lazy](const ParameterLayout& layout, ProcessGrid grid,
                                            const std::vector<int>& slices) {
    UpdateMemoryParts parts{
        .layout = layout, .grid = grid, .slices = slices, .statistics = layout.statistic_count};
    if (windows) parts.lazy = plan_lazy_layers(model, layout, lazy, layout.blocks.size());
    const UpdateMemory memory = memory_of_updates(experiment, parts);
    std::uint64_t bytes = memory.optimizer + memory.scheme;
    if (experiment.checkpoint.wanted()) {
      const bool own_scheme = !experiment.update.plugin.empty();
      bytes +=
          checkpoint_copy(experiment, own_scheme, layout.parameter_count, layout.statistic_count) +
          memory.saved;
    }
    return bytes;
  };
}

}  // namespace

DecodedSets decoded_sets(const Dataset& dataset) {
  return {.training = dataset.training.source != nullptr, .test = dataset.test.source != nullptr};
}

int buffered_batches(const Experiment& experiment, DecodedSets decoded) {
  const int training = static_cast<int>(decoded.training ? decoded_ahead : copied_ahead) + 1;
  const int streams = is_paced(experiment) ? 2 : 1;  // one more for ranks that step alone
  return streams * training + (decoded.test ? 2 : 1);
}

PlanOptions plan_options(const Experiment& experiment, const Model& model) {
  const bool divides = scheme_of(experiment.update).divides_optimizer;
  // Sharded updates that clip gradients need whole layers, and all parameters on each rank.
  const bool clips_shares = divides && experiment.optimizer.clip_norm > 0.0;
  return {.batch = experiment.train.global_batch,
          .paths = transport::AllreducePaths(experiment.transport.allreduce),
          .memory_limit = static_cast<std::uint64_t>(experiment.train.memory_limit),
          .optimizer_elements = optimizer_elements(experiment.optimizer),
          .divides_optimizer = divides,
          .micro_batches = static_cast<int>(experiment.train.accumulate),
          .threads = static_cast<int>(std::max<std::int64_t>(experiment.train.threads, 1)),
          .bucket_bytes = experiment.update.bucket_bytes,
          .type = experiment.train.precision,
          .convolution = experiment.train.convolution,
          .gradient_type = experiment.train.reduce_precision,
          .batch_norm = experiment.grid.batch_norm,
          .whole_layers = clips_shares || experiment.optimizer.name == OptimizerName::lars,
          .replicas = !clips_shares,
          .buffered_batches = buffered_batches(experiment, usual_decoded_sets(experiment)),
          .update_bytes = update_bytes_of(experiment, model)};
}

}  // namespace rondo::train
