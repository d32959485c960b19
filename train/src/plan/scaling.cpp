#include <stdexcept>

#include <rondo/sync/scheme_description.hpp>
#include <rondo/train/scaling.hpp>

#include "plan/check_options.hpp"
#include "plan/local_work.hpp"
#include "plan/overlap.hpp"
#include "plan/scheme_time.hpp"

namespace rondo::train {
namespace {

void require_scaling(bool possible, const char* what) {
  if (!possible) throw std::invalid_argument(std::string("scaling: ") + what);
}

void check(const ScalingOptions& options) {
  train::check({.batch = options.batch, .fabric = options.fabric, .node = options.node});
  require_scaling(options.first >= 1 && options.first <= options.last,
                  "ranks must begin with at least one, and not behind their end");
  require_scaling(options.ranks_per_node >= 1, "needs at least one rank per node");
  require_scaling(options.tau >= 1.0, "a window has at least one iteration");
  require_scaling(options.optimizer_words >= 0, "optimizer_words must be at least 0");
  require_scaling(options.fixed == FixedBatch::per_rank || options.first <= options.batch,
                  "the batch of all ranks has no sample for each of the fewest ranks");
}

std::int64_t samples_on(int ranks, const ScalingOptions& options) {
  if (options.fixed == FixedBatch::per_rank) return options.batch;
  return (options.batch + ranks - 1) / ranks;
}

ScalingPoint point(const Model& model, const Experiment::Update& update,
                   const ScalingOptions& options, const ComputeCosts& costs, int ranks) {
  const Backward backward = backward_of(model, samples_on(ranks, options), costs);
  const double optimizer = costs.update_seconds(layout_of(model).parameter_count);
  const bool grows = options.fixed == FixedBatch::per_rank;
  ScalingPoint at{.ranks = ranks, .global_batch = grows ? options.batch * ranks : options.batch};
  at.step_seconds = step_seconds({.model = model,
                                  .update = update,
                                  .options = options,
                                  .backward = backward,
                                  .ranks = ranks,
                                  .update_seconds = optimizer});
  at.compute_seconds = backward.end + optimizer;
  at.images_per_second = static_cast<double>(at.global_batch) / at.step_seconds;
  return at;
}

std::vector<int> ranks_of(const ScalingOptions& options) {
  std::vector<int> all;
  for (std::int64_t ranks = options.first; ranks <= options.last; ranks *= 2) {
    const bool enough = options.fixed == FixedBatch::per_rank || ranks <= options.batch;
    if (enough) all.push_back(static_cast<int>(ranks));
  }
  return all;
}

}  // namespace

std::vector<ScalingPoint> predict_scaling(const Model& model, const Experiment::Update& update,
                                          const ScalingOptions& options,
                                          const ComputeCosts& costs) {
  check(options);
  const bool lazy = sync::describe_scheme(update.scheme).windows && update.max_interval > 0;
  require_scaling(!lazy || options.tau <= static_cast<double>(update.max_interval),
                  "windows are longer than update.max_interval on average");
  const double alone = point(model, update, options, costs, 1).images_per_second;
  std::vector<ScalingPoint> points;
  for (const int ranks : ranks_of(options)) {
    ScalingPoint at = point(model, update, options, costs, ranks);
    at.speedup = at.images_per_second / alone;
    at.efficiency = at.speedup / ranks;
    points.push_back(at);
  }
  return points;
}

std::vector<std::int64_t> samples_of_ranks(const ScalingOptions& options) {
  check(options);
  std::vector<std::int64_t> samples = {samples_on(1, options)};
  for (const int ranks : ranks_of(options)) samples.push_back(samples_on(ranks, options));
  return samples;
}

std::vector<LocalWork> unsplit_work(const Model& model, std::int64_t samples) {
  const PlanOptions options{.batch = samples};
  const GridJob job{
      .model = model, .options = options, .grid = {}, .shapes = shapes_of(model, samples)};
  std::vector<LocalWork> work;
  for (std::size_t i = 0; i < model.layers.size(); ++i) {
    work.push_back(local_work(job, layer_of(job, i), {}));
  }
  return work;
}

}  // namespace rondo::train
