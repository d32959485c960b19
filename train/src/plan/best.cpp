// The best split of each layer on every grid (plan_best.hpp): the search on each grid, the times
// that are measured for it, and the [grid] section that makes a run train so.

#include <algorithm>
#include <optional>
#include <stdexcept>
#include <string>
#include <tuple>
#include <utility>

#include <fmt/format.h>

#include <rondo/train/plan_best.hpp>
#include <rondo/train/scaling.hpp>

#include "config/grid_choice.hpp"
#include "config/key.hpp"
#include "layers/layer_type.hpp"
#include "plan/closed_forms.hpp"
#include "plan/grid_job.hpp"
#include "plan/layer_costs.hpp"
#include "plan/layout_search.hpp"
#include "plan/step_timeline.hpp"

namespace rondo::train {
namespace {

GridJob job_of(const Model& model, const PlanOptions& options, ProcessGrid grid) {
  return {.model = model,
          .options = options,
          .grid = grid,
          .shapes = shapes_of(model, samples_of_pass(options))};
}

// Layers that follow are counted with the one that decided how their input lies; in front of all
// splits, with the first.
std::vector<std::size_t> owners_of(const Model& model) {
  std::vector<std::size_t> owner(model.layers.size() + 1, 0);  // by value, the index in the plan
  std::size_t next = 0;
  for (std::size_t i = 0; i < model.layers.size(); ++i) {
    const bool splits = has_weights(model.layers[i]);
    owner[i + 1] = splits ? next++ : owner[model.layers[i].inputs[0]];
  }
  return owner;
}

void add_up(BestPlan& plan) {
  for (const BestLayer& layer : plan.layers) {
    plan.compute_seconds += layer.compute_seconds;
    plan.exchange_seconds += layer.exchange_seconds;
    plan.reduction_seconds += layer.reduction_seconds;
    plan.redistribution_seconds += layer.redistribution_seconds;
  }
}

void describe(const GridJob& job, const FoundLayouts& found, BestPlan& plan) {
  for (std::size_t i = 0; i < found.layers.size(); ++i) {
    plan.splits.push_back(found.layers[i].option.split);
    const LayerSpec& layer = job.model.layers[i];
    if (has_weights(layer)) plan.layers.push_back({.name = layer.name, .split = plan.splits[i]});
  }
  const std::vector<std::size_t> owners = owners_of(job.model);
  const double passes = passes_of(job.options);
  for (std::size_t i = 0; i < found.layers.size(); ++i) {
    const LayerOption& option = found.layers[i].option;
    BestLayer& counted = plan.layers[owners[i + 1]];
    counted.compute_seconds += passes * option.compute.total();
    counted.exchange_seconds += passes * option.exchange.seconds();
    counted.reduction_seconds += option.reduction;
    counted.redistribution_seconds += passes * found.layers[i].redistribution;
  }
  // Bringing the logits together is the last layer's cost.
  plan.layers.back().redistribution_seconds += passes * found.closing;
  add_up(plan);
}

// Finds the best splits on one grid.
class GridPlanner {
 public:
  GridPlanner(const GridJob& job, const ComputeCosts& costs, KernelMemories& kernels)
      : job_(job), costs_(costs), kernels_(kernels), layouts_(possible_layouts(job)) {}

  BestPlan run() {
    // A state packs the number of a layout into a few bits (layout_search.hpp).
    if (layouts_.size() > most_layouts) {
      return refused(fmt::format("a replica of {} ranks can be split in more than {} ways",
                                 job_.grid.pr, most_layouts));
    }
    const std::uint64_t limit = job_.options.memory_limit;
    // Without a limit first: usually the fastest plan fits, and the search with a limit keeps many
    // more states.
    const std::optional<Candidate> fastest = search(0);
    if (fastest && (limit == 0 || fastest->plan.bytes_per_rank <= limit)) return fastest->plan;
    if (!fastest) {
      return refused(
          "no splits of the layers go together, or oneDNN has only slow reference kernels for "
          "them");
    }
    if (limit > 0) {
      if (const auto fitting = search_below(limit, *fastest)) return *fitting;
    }
    return refused(fmt::format("no splits of the layers fit into the {} bytes allowed", limit));
  }

 private:
  struct Candidate {
    BestPlan plan = {};
    std::uint64_t searched_bytes = 0;  // that the search has counted
  };

  [[nodiscard]] BestPlan refused(std::string why) const {
    return {.grid = job_.grid, .refused = std::move(why)};
  }

  // The fastest splits for which the search counts at most so many bytes; 0: any number.
  std::optional<Candidate> search(std::uint64_t most_bytes) {
    PlanOptions options = job_.options;
    options.memory_limit = most_bytes;
    const GridJob job{
        .model = job_.model, .options = options, .grid = job_.grid, .shapes = job_.shapes};
    const std::optional<FoundLayouts> found = search_layouts_of(job);
    if (!found) return std::nullopt;
    Candidate candidate{.plan = {.grid = job_.grid},
                        .searched_bytes = element_bytes * found->elements};
    describe(job_, *found, candidate.plan);
    candidate.plan.overlapped_seconds = step_seconds(job, *found);
    candidate.plan.bytes_per_rank =
        rank_bytes(kernels_, job_.model, candidate.plan.splits, job_.grid, job_.options);
    return candidate;
  }

  static double step_seconds(const GridJob& job, const FoundLayouts& found) {
    return job.options.bucket_bytes > 0 ? bucketed_seconds(job, found) : found.seconds;
  }

  // The search takes exchanges to disturb no reductions; or, the second time, to keep the port busy
  // beside all of them. Either may find the faster step.
  [[nodiscard]] std::optional<FoundLayouts> search_layouts_of(const GridJob& job) const {
    std::optional<FoundLayouts> found = search_within_memory(job, layouts_, costs_);
    const bool shares_ports = job.options.bucket_bytes > 0 && job.grid.pr > 1 &&
                              job.grid.ranks() > job.options.ranks_per_node;
    if (!found || !shares_ports) return found;
    GridJob counting = job;
    counting.counts_ports = true;
    std::optional<FoundLayouts> other = search_within_memory(counting, layouts_, costs_);
    return other && step_seconds(job, *other) < step_seconds(job, *found) ? other : found;
  }

  // The search counts what each layer adds by itself, and only when all splits are known it is
  // clear what a rank takes. So the search is given as much more than the limit as it counted too
  // much for the fastest splits, and less again as long as a rank then takes too much.
  std::optional<BestPlan> search_below(std::uint64_t limit, const Candidate& fastest) {
    constexpr int most_rounds = 32;
    const std::uint64_t counted = fastest.searched_bytes;
    const std::uint64_t taken = fastest.plan.bytes_per_rank;
    std::uint64_t allowed = limit + (counted > taken ? counted - taken : 0);
    for (int round = 0; round < most_rounds && allowed > 0; ++round) {
      const std::optional<Candidate> found = search(allowed);
      if (!found) return std::nullopt;
      if (found->plan.bytes_per_rank <= limit) return found->plan;
      allowed = fewer_bytes(*found, limit);
    }
    return std::nullopt;
  }

  // The next limit where these splits take too much: less by the excess, or by its share, whichever
  // leaves more, so that nothing that fits is passed over.
  static std::uint64_t fewer_bytes(const Candidate& found, std::uint64_t limit) {
    const std::uint64_t counted = found.searched_bytes;
    const std::uint64_t excess = found.plan.bytes_per_rank - limit;
    const double share =
        static_cast<double>(limit) / static_cast<double>(found.plan.bytes_per_rank);
    const auto by_share = static_cast<std::uint64_t>(static_cast<double>(counted) * share);
    const std::uint64_t by_excess = counted > excess ? counted - excess : 0;
    const std::uint64_t less = counted > element_bytes ? counted - element_bytes : 0;
    return std::min(less, std::max(by_share, by_excess));
  }

  const GridJob& job_;
  const ComputeCosts& costs_;
  KernelMemories& kernels_;
  std::vector<ValueLayout> layouts_;
};

// How many parameters the rank updates that updates most.
std::size_t updated_parameters(const GridJob& job, const BestPlan& plan) {
  const std::vector<LayerSplit>& splits = plan.splits;
  const std::vector<ParameterBlock> blocks = layout_of(job.model).blocks;
  std::int64_t parameters = 0;
  for (std::size_t i = 0; i < splits.size(); ++i) {
    const auto block = std::ranges::find(blocks, job.model.layers[i].name, &ParameterBlock::name);
    if (block == blocks.end()) continue;
    const auto size = static_cast<std::int64_t>(block->size);
    const std::int64_t held = largest_part(size, weight_parts(job, splits[i]));
    const bool divides = job.options.divides_optimizer;
    parameters += divides ? largest_part(held, reduced_over(job, splits[i]).size) : held;
  }
  return static_cast<std::size_t>(parameters);
}

}  // namespace

std::vector<BestPlan> best_plans(const Model& model, const PlanOptions& options,
                                 const ComputeCosts& costs) {
  check(options);
  const bool splits = std::ranges::any_of(model.layers, has_weights);
  if (!splits) throw std::invalid_argument("plan: nothing to split");
  std::vector<BestPlan> plans;
  KernelMemories kernels(options.threads, options.convolution);
  for (const int pr : grid_rows(options)) {
    const GridJob job = job_of(model, options, {pr, options.ranks / pr});
    BestPlan& plan = plans.emplace_back(GridPlanner(job, costs, kernels).run());
    if (!plan.refused.empty()) continue;
    plan.update_seconds = options.slowdown * costs.update_seconds(updated_parameters(job, plan));
    plan.overlapped_seconds += plan.update_seconds;
  }
  // Grids that are refused come last, but they are shown: with the reason.
  std::ranges::sort(plans, {}, [](const BestPlan& plan) {
    return std::tuple(!plan.refused.empty(), plan.overlapped_seconds, plan.grid.pr);
  });
  return plans;
}

std::vector<LocalWork> work_of(const Model& model, const PlanOptions& options,
                               const BestPlan& plan) {
  const GridJob job = job_of(model, options, plan.grid);
  std::vector<LocalWork> work;
  for (std::size_t i = 0; i < plan.splits.size(); ++i) {
    work.push_back(local_work(job, layer_of(job, i), plan.splits[i]));
  }
  return work;
}

std::vector<BestPlan> measured_best_plans(const Model& model, const PlanOptions& options,
                                          ComputeTable& table, int most_measurements) {
  const std::int64_t of_all = samples_of_pass(options);
  const std::int64_t samples = (of_all + options.ranks - 1) / options.ranks;
  // Every layer is measured unsplit first, so that each has a rate from which splits can be
  // estimated.
  for (const LocalWork& work : unsplit_work(model, samples)) table.measure(work);
  table.measure_update(layout_of(model).parameter_count);
  // Where memory is short, a whole model may not fit.
  if (options.memory_limit == 0) table.measure_step(model, samples, of_all);
  while (true) {
    std::vector<BestPlan> plans = best_plans(model, options, table);
    bool all_known = true;
    for (const LocalWork& work : work_of(model, options, plans.front())) {
      const bool known = table.knows(work);
      if (!known && table.measurements() >= most_measurements) return plans;
      all_known = all_known && known;
      table.measure(work);  // what is known still teaches the layer's rate
    }
    if (all_known) return plans;
  }
}

std::string split_text(const LayerSplit& split) { return to_text(split); }

Experiment::Grid grid_keys(const BestPlan& plan) {
  Experiment::Grid grid;
  grid.sample = plan.grid.pc;
  if (plan.grid.pr == 1) return grid;
  // The numbers of [grid] only have to make the size of a replica; each layer's split is given by
  // name.
  grid.filter = plan.grid.pr;
  for (const BestLayer& layer : plan.layers) {
    grid.layers.emplace_back(layer.name, to_text(layer.split));
  }
  return grid;
}

std::string grid_section(const BestPlan& plan, BatchNormScope batch_norm) {
  const Experiment::Grid grid = grid_keys(plan);
  std::string text = fmt::format("[grid]\nsample = {}\n", grid.sample);
  if (batch_norm != grid.batch_norm) {
    Experiment experiment;
    experiment.grid.batch_norm = batch_norm;
    text += fmt::format("batch_norm = {}\n",
                        to_toml_value(find_key("grid.batch_norm")->get(experiment)));
  }
  if (grid.layers.empty()) return text;
  text += fmt::format("filter = {}\n\n[grid.layers]\n", grid.filter);
  for (const auto& [name, split] : grid.layers)
    text += fmt::format("\"{}\" = \"{}\"\n", name, split);
  return text;
}

}  // namespace rondo::train
