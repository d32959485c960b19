// How a scheme scales (scaling.hpp): the time of a step on more and more ranks, with what backward
// hides of the reductions. Each scheme is a formula over the same three things: when the gradients
// of each layer are final, what an allreduce takes, and how long the optimizer works. No formula
// counts what ranks wait for slow ones, so a prediction is optimistic.

#include <rondo/train/scaling.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <fstream>
#include <functional>
#include <optional>
#include <ranges>
#include <span>
#include <stdexcept>
#include <vector>

#include <nlohmann/json.hpp>

#include <rondo/sync/buckets.hpp>
#include <rondo/sync/cyclic.hpp>
#include <rondo/sync/hierarchical.hpp>
#include <rondo/sync/k_step.hpp>
#include <rondo/sync/lazy.hpp>
#include <rondo/sync/sharded.hpp>
#include <rondo/sync/synchronous.hpp>
#include <rondo/sync/update_scheme.hpp>
#include <rondo/train/compute_costs.hpp>
#include <rondo/train/dataset.hpp>
#include <rondo/train/experiment.hpp>
#include <rondo/train/model.hpp>

#include "config/combinations.hpp"
#include "plan/backward.hpp"
#include "plan/closed_forms.hpp"
#include "plan/layer_costs.hpp"
#include "schemes/lazy.hpp"

namespace rondo::train {
namespace {

// Seconds in which so many elements are reduced.
using Reduction = std::function<double(double elements)>;

// The facts that a step's time depends on.
struct SchemeJob {
  const Model& model;
  const Experiment::Update& update;
  const PlanOptions& plan;  // with the number of ranks
  const Backward& backward;
  double tau = 1.0;
  double update_seconds = 0.0;  // U; of a divided optimizer, what a rank's share takes
};

// Parameters of adjacent layers that are sent together.
struct BucketOfBlocks {
  const FinalGradients& first;  // the block nearest to the input
  double elements = 0.0;
};

// The buckets of all blocks from `first` on; the output side's is first. Where the input side's
// layers are lazy, no small bucket is last, because their backward follows.
std::vector<BucketOfBlocks> buckets_of(const Backward& backward, std::size_t first,
                                       std::int64_t bucket_bytes) {
  auto limits = sync::BucketLimits::of(static_cast<std::size_t>(bucket_bytes));
  if (first > 0) limits.last_bytes = 0;
  const auto blocks = std::span(backward.blocks).subspan(first);
  std::vector<sync::LayerGradients> layers;
  for (const FinalGradients& block : blocks) layers.push_back({.elements = block.elements});
  std::vector<BucketOfBlocks> buckets;
  for (const auto& [first_layer, last_layer] : sync::plan_buckets(layers, limits)) {
    double elements = 0.0;
    for (const FinalGradients& block : blocks.subspan(first_layer, last_layer - first_layer)) {
      elements += static_cast<double>(block.elements);
    }
    buckets.push_back({.first = blocks[first_layer], .elements = elements});
  }
  return buckets;
}

// When the reductions of all blocks from `first` on have ended; 0 if there are none. One reduction
// at a time: a bucket begins when its gradients are final and the one before has ended.
double reductions_end(const Backward& backward, std::size_t first, std::int64_t bucket_bytes,
                      const Reduction& reduction) {
  double end = 0.0;
  for (const BucketOfBlocks& bucket : buckets_of(backward, first, bucket_bytes)) {
    end = std::max(end, bucket.first.seconds) + reduction(bucket.elements);
  }
  return end;
}

// A collective of so many ranks. All ranks of a job that is smaller than a node are on one.
template <typename Cost>
double collective(const SchemeJob& job, Cost cost, double elements, int ranks) {
  PlanOptions links = job.plan;
  if (job.plan.ranks <= links.ranks_per_node) links.ranks_per_node = ranks;
  return cost(elements, ProcessGroup{.size = ranks, .stride = 1}, links).seconds;
}

double allreduce_seconds(const SchemeJob& job, double elements, int ranks) {
  return collective(job, allreduce_cost, elements, ranks);
}

// The same of gradients, as they are sent.
double reduction_seconds(const SchemeJob& job, double elements) {
  return allreduce_seconds(job, in_f32(elements, job.plan.gradient_type), job.plan.ranks);
}

double parameters_of(const SchemeJob& job) {
  double elements = 0.0;
  for (const FinalGradients& block : job.backward.blocks)
    elements += static_cast<double>(block.elements);
  return elements;
}

// When everything from block `first` on has been reduced.
double reduced_from(const SchemeJob& job, std::size_t first) {
  return reductions_end(job.backward, first, job.update.bucket_bytes,
                        [&](double elements) { return reduction_seconds(job, elements); });
}

// The time that backward does not hide is added to the step.
double synchronous_seconds(const SchemeJob& job) {
  return std::max(job.backward.end, reduced_from(job, 0)) + job.update_seconds;
}

// The time that forward waits for parameters. They are gathered bucket by bucket from the input
// side on, and a layer begins when those of its bucket have arrived.
double gathering_waits(const SchemeJob& job) {
  double arrived = 0.0;
  double waits = 0.0;
  const auto buckets = buckets_of(job.backward, 0, job.update.bucket_bytes);
  for (const BucketOfBlocks& bucket : buckets | std::views::reverse) {
    arrived += collective(job, gathering_cost, bucket.elements, job.plan.ranks);
    waits = std::max(waits, arrived - bucket.first.needed);
  }
  return waits;
}

// Buckets are reduced as under synchronous, into shares.
double sharded_seconds(const SchemeJob& job) {
  const double reduced =
      reductions_end(job.backward, 0, job.update.bucket_bytes, [&](double elements) {
        return collective(job, scattering_cost, in_f32(elements, job.plan.gradient_type),
                          job.plan.ranks);
      });
  return std::max(job.backward.end, reduced) + job.update_seconds + gathering_waits(job);
}

LazyPlan lazy_plan(const SchemeJob& job) {
  std::vector<double> left;
  std::vector<double> reduction;
  for (const FinalGradients& block : job.backward.blocks) {
    left.push_back(job.backward.end - block.seconds);
    reduction.push_back(reduction_seconds(job, static_cast<double>(block.elements)));
  }
  Experiment experiment;
  experiment.update = job.update;
  return plan_lazy_layers(job.model, lazy_layers_of(experiment),
                          sync::count_unhidden_layers(left, reduction));
}

// When the gradients are final of which this is a part.
double final_seconds(const SchemeJob& job, const sync::Probe& probe) {
  std::size_t block = 0;
  for (std::size_t offset = 0; offset < probe.offset; ++block) {
    offset += job.backward.blocks[block].elements;
  }
  return job.backward.blocks[block].seconds;
}

// When the probes that the controller looks at have been reduced, where `end` is when all before
// them have.
double probes_end(const SchemeJob& job, const LazyPlan& plan, double end) {
  const bool every = job.update.controller == sync::LazyController::every_layer;
  const std::size_t first = every ? 0 : plan.probes.size() - 1;
  double elements = 0.0;
  for (std::size_t probe = first; probe < plan.probes.size(); ++probe) {
    elements += static_cast<double>(plan.probes[probe].size);
  }
  return std::max(end, final_seconds(job, plan.probes[first])) + reduction_seconds(job, elements);
}

// The iteration that ends a window.
double window_end_seconds(const SchemeJob& job, const LazyPlan& plan, double rest) {
  const double all_final = job.backward.blocks.front().seconds;
  double end = job.tau > 1.0 ? probes_end(job, plan, rest) : rest;
  double lazy_elements = 0.0;
  for (std::size_t block = 0; block < plan.layers; ++block) {
    lazy_elements += static_cast<double>(job.backward.blocks[block].elements);
  }
  end = std::max(end, all_final) + reduction_seconds(job, lazy_elements);
  return std::max(job.backward.end, end);
}

// The mean over a window of tau iterations: tau - 1 that reduce all but the lazy layers, and a last
// one that reduces them as well.
double lazy_seconds(const SchemeJob& job) {
  const LazyPlan plan = lazy_plan(job);
  if (plan.layers == 0) return synchronous_seconds(job);
  const double rest = reduced_from(job, plan.layers);
  const double others = std::max(job.backward.end, rest);
  const double last = window_end_seconds(job, plan, rest);
  return ((job.tau - 1.0) * others + last) / job.tau + job.update_seconds;
}

// The size of an average, in elements of fp32: displacements may be sent as bf16.
double averaged_elements(const SchemeJob& job) {
  const double parameters = parameters_of(job);
  const bool state = job.update.optimizer_state == sync::LocalState::average;
  return in_f32(parameters, job.plan.gradient_type) +
         (state ? parameters * job.plan.optimizer_elements : 0.0);
}

// What is left of the average of all ranks by the local steps that overlap with it: those that are
// asked for, but no more than there are until the next average. Fragments are averaged one by one.
double global_average_seconds(const SchemeJob& job, double until_next) {
  const auto fragments = static_cast<double>(job.update.fragments);
  const double average = allreduce_seconds(job, averaged_elements(job) / fragments, job.plan.ranks);
  const double steps = std::min(static_cast<double>(job.update.overlap_steps), until_next);
  const double hidden = steps * (job.backward.end + job.update_seconds);
  return fragments * std::max(0.0, average - hidden);
}

// Steps of a round: the mean, where a policy chooses them.
double period_of(const SchemeJob& job) {
  return has_mean_period(job.update) ? job.tau : static_cast<double>(job.update.period);
}

// Nothing is reduced within a period. The adaptive policy sums a loss at its end: 8 bytes.
double k_step_seconds(const SchemeJob& job) {
  const double period = period_of(job);
  double averages = global_average_seconds(job, period);
  if (job.update.period_policy == PeriodChoice::adaptive)
    averages += allreduce_seconds(job, 2.0, job.plan.ranks);
  return job.backward.end + job.update_seconds + averages / period;
}

double hierarchical_seconds(const SchemeJob& job) {
  const double elements = averaged_elements(job);
  const double round = period_of(job);
  auto period = static_cast<double>(job.update.local_period);
  double averages = global_average_seconds(job, std::min(period, round));
  if (job.update.period_policy == PeriodChoice::adaptive)
    averages += allreduce_seconds(job, 2.0, job.plan.ranks);
  double ranks_averaged = static_cast<double>(
      job.update.group > 0 ? job.update.group : std::int64_t{job.plan.ranks_per_node});
  // The averages of a level on which no slower one falls.
  const auto add_level = [&](double slower) {
    const double times = std::max(0.0, round / period - round / slower);
    const int ranks =
        static_cast<int>(std::min(ranks_averaged, static_cast<double>(job.plan.ranks)));
    averages += times * allreduce_seconds(job, elements, ranks);
  };
  for (const auto& [slower, ranks] : job.update.levels) {
    add_level(static_cast<double>(slower));
    period = static_cast<double>(slower);
    ranks_averaged = ranks;
  }
  add_level(round);
  return job.backward.end + job.update_seconds + averages / round;
}

// All that the token's way takes in a round: inside a node a number, to the next one the store.
double handover_seconds(const SchemeJob& job) {
  const PlanOptions& plan = job.plan;
  const int nodes = (plan.ranks - 1) / plan.ranks_per_node + 1;
  if (nodes == 1) return plan.ranks * plan.node.alpha_seconds;
  const double store = (1 + plan.optimizer_elements) * parameters_of(job);
  const double between =
      2.0 * plan.fabric.alpha_seconds + store * element_bytes / plan.fabric.bandwidth;
  return (plan.ranks - nodes) * plan.node.alpha_seconds + nodes * between;
}

// Mini-batches that a worker computes between two turns.
double minibatches_of(const SchemeJob& job, double round) {
  const double compute = job.backward.end;
  if (job.update.delay == sync::Delay::fixed || compute == 0.0) return 1.0;
  const double minibatches = (round - job.update_seconds) / compute;
  const auto cap = static_cast<double>(job.update.minibatch_cap);
  return cap > 0.0 ? std::min(minibatches, cap) : minibatches;
}

double cyclic_seconds(const SchemeJob& job) {
  const double alone = job.backward.end + job.update_seconds;
  if (job.plan.ranks == 1) return alone;
  // The token goes round: all updates follow each other, and each worker has computed something by
  // then.
  const double round = std::max(job.plan.ranks * job.update_seconds + handover_seconds(job), alone);
  return round / minibatches_of(job, round);
}

struct SchemeCost {
  sync::SchemeDescription scheme;
  double (*seconds)(const SchemeJob& job);
};

constexpr std::array costs_of_schemes{
    SchemeCost{sync::synchronous_scheme, synchronous_seconds},
    SchemeCost{sync::sharded_scheme, sharded_seconds},
    SchemeCost{sync::lazy_scheme, lazy_seconds},
    SchemeCost{sync::k_step_scheme, k_step_seconds},
    SchemeCost{sync::hierarchical_scheme, hierarchical_seconds},
    SchemeCost{sync::cyclic_scheme, cyclic_seconds},
};

// The seconds of scaling.hpp for the scheme that update.scheme names, in which a rank trains its
// samples once. Throws std::invalid_argument for a name that is none.
double step_seconds(const SchemeJob& job) {
  for (const auto& [scheme, seconds] : costs_of_schemes) {
    if (job.update.scheme == scheme.name) return seconds(job);
  }
  throw std::invalid_argument("scaling: no scheme is called " + job.update.scheme);
}

}  // namespace

bool has_mean_period(const Experiment::Update& update) {
  return sync::describe_scheme(update.scheme).windows ||
         update.period_policy != PeriodChoice::constant;
}

namespace {

// A field of an event as a number; nothing where it is none.
std::optional<double> number_in_event(const nlohmann::json& event, const char* field) {
  const auto found = event.find(field);
  if (found == event.end() || !found->is_number()) return std::nullopt;
  return found->get<double>();
}

// The iterations of a window or the steps of a round; nothing of other lines.
std::optional<double> length_of_window(const nlohmann::json& event, std::int64_t behind_step) {
  if (!event.is_object()) return std::nullopt;
  const auto kind = event.value("event", nlohmann::json());
  if (kind != "window" && kind != "round") return std::nullopt;
  const double step = number_in_event(event, "total_step").value_or(0.0);
  if (behind_step > 0 && step <= static_cast<double>(behind_step)) return std::nullopt;
  return number_in_event(event, kind == "window" ? "iterations" : "steps");
}

}  // namespace

double mean_window(const std::filesystem::path& metrics, std::int64_t behind_step) {
  std::ifstream file(metrics);
  if (!file) {
    throw DataError(metrics.string() + ": cannot be read; name the metrics.jsonl of a run");
  }
  double iterations = 0.0;
  double windows = 0.0;
  for (std::string line; std::getline(file, line);) {
    const auto event = nlohmann::json::parse(line, nullptr, false);
    const auto length = length_of_window(event, behind_step);
    if (!length) continue;
    iterations += *length;
    windows += 1.0;
  }
  if (iterations < 1.0) {
    throw DataError(metrics.string() +
                    ": has no windows or rounds; it must be of a run with the scheme lazy, k_step "
                    "or hierarchical");
  }
  return iterations / windows;
}

namespace {

void require_scaling(bool possible, const char* what) {
  if (!possible) throw std::invalid_argument(std::string("scaling: ") + what);
}

std::int64_t samples_on(int ranks, const ScalingOptions& options) {
  const std::int64_t batch = options.job.batch;
  return options.fixed == FixedBatch::per_rank ? batch : (batch + ranks - 1) / ranks;
}

void check(const ScalingOptions& options) {
  check_costs(options.job);
  require_scaling(options.first >= 1 && options.first <= options.last,
                  "ranks must begin with at least one, and not behind their end");
  require_scaling(options.tau >= 1.0, "a window has at least one iteration");
  require_scaling(options.fixed == FixedBatch::per_rank || options.first <= options.job.batch,
                  "the batch of all ranks has no sample for each of the fewest ranks");
  require_scaling(samples_on(options.first, options) >= options.job.micro_batches,
                  "micro-batches are more than the samples that a replica has of a step");
}

// The costs of a rank that computes beside others.
class SlowedCosts final : public ComputeCosts {
 public:
  SlowedCosts(const ComputeCosts& alone, double slowdown) : alone_(alone), slowdown_(slowdown) {}

  [[nodiscard]] WorkSeconds seconds(const LocalWork& work) const override {
    return slowdown_ * alone_.seconds(work);
  }
  [[nodiscard]] double update_seconds(std::size_t parameters) const override {
    return slowdown_ * alone_.update_seconds(parameters);
  }

 private:
  const ComputeCosts& alone_;
  double slowdown_;
};

ScalingPoint point(const Model& model, const Experiment::Update& update,
                   const ScalingOptions& options, const ComputeCosts& alone, int ranks) {
  PlanOptions plan = options.job;
  plan.ranks = ranks;
  const SlowedCosts costs(alone, ranks > 1 ? plan.slowdown : 1.0);
  const Backward backward =
      backward_of_step(model, samples_on(ranks, options), plan.micro_batches, costs);
  const bool divides = sync::describe_scheme(update.scheme).divides_optimizer;
  const double optimizer =
      costs.update_seconds(layout_of(model).parameter_count) / (divides ? ranks : 1);
  const bool grows = options.fixed == FixedBatch::per_rank;
  ScalingPoint at{.ranks = ranks, .global_batch = grows ? plan.batch * ranks : plan.batch};
  at.step_seconds = step_seconds({.model = model,
                                  .update = update,
                                  .plan = plan,
                                  .backward = backward,
                                  .tau = options.tau,
                                  .update_seconds = optimizer});
  at.compute_seconds = backward.end + optimizer;
  at.images_per_second = static_cast<double>(at.global_batch) / at.step_seconds;
  return at;
}

std::vector<int> ranks_of(const ScalingOptions& options) {
  std::vector<int> all;
  for (std::int64_t ranks = options.first; ranks <= options.last; ranks *= 2) {
    const auto count = static_cast<int>(ranks);
    const bool has_samples = options.fixed == FixedBatch::per_rank || ranks <= options.job.batch;
    if (has_samples && samples_on(count, options) >= options.job.micro_batches)
      all.push_back(count);
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
  // Speed-up is relative to one rank with the same scheme.
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
  std::vector<std::int64_t> samples;
  const auto add = [&](int ranks) {
    const MicroBatches parts =
        micro_batches_of(samples_on(ranks, options), options.job.micro_batches);
    samples.push_back(parts.large);
    if (parts.small_count > 0) samples.push_back(parts.small);
  };
  add(1);
  for (const int ranks : ranks_of(options)) add(ranks);
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
