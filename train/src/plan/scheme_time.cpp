#include "plan/scheme_time.hpp"

#include <algorithm>
#include <array>
#include <stdexcept>

#include <rondo/sync/cyclic.hpp>
#include <rondo/sync/hierarchical.hpp>
#include <rondo/sync/k_step.hpp>
#include <rondo/sync/lazy.hpp>
#include <rondo/sync/synchronous.hpp>

#include "config/combinations.hpp"
#include "plan/collective_cost.hpp"
#include "plan/word_bytes.hpp"
#include "schemes/lazy.hpp"

namespace rondo::train {
namespace {

// All ranks of a job that is smaller than a node are on one.
double allreduce_seconds(const SchemeJob& job, double words, int ranks) {
  const bool one_node = job.ranks <= job.options.ranks_per_node;
  const PlanOptions links{.fabric = job.options.fabric,
                          .node = job.options.node,
                          .ranks_per_node = one_node ? ranks : job.options.ranks_per_node};
  return 2.0 * collective_seconds(words, {.size = ranks, .stride = 1}, links);
}

double parameters_of(const SchemeJob& job) {
  double words = 0.0;
  for (const FinalGradients& group : job.backward.groups) words += static_cast<double>(group.words);
  return words;
}

// When everything from group `first` on has been reduced.
double reduced_from(const SchemeJob& job, std::size_t first) {
  const auto bucket_words = static_cast<std::size_t>(job.update.bucket_bytes / 4);
  return reductions_end(job.backward, first, bucket_words,
                        [&](double words) { return allreduce_seconds(job, words, job.ranks); });
}

double synchronous_seconds(const SchemeJob& job) {
  return std::max(job.backward.end, reduced_from(job, 0)) + job.update_seconds;
}

LazyPlan lazy_plan(const SchemeJob& job) {
  std::vector<double> left;
  std::vector<double> reduction;
  for (const FinalGradients& group : job.backward.groups) {
    left.push_back(job.backward.end - group.seconds);
    reduction.push_back(allreduce_seconds(job, static_cast<double>(group.words), job.ranks));
  }
  Experiment experiment;
  experiment.update = job.update;
  return plan_lazy_layers(job.model, lazy_layers_of(experiment),
                          sync::count_unhidden_layers(left, reduction));
}

// When the gradients are final of which this is a part.
double final_seconds(const SchemeJob& job, const sync::Probe& probe) {
  std::size_t group = 0;
  for (std::size_t offset = 0; offset < probe.offset; ++group) {
    offset += job.backward.groups[group].words;
  }
  return job.backward.groups[group].seconds;
}

// When the probes that the controller looks at have been reduced, where `end` is when all before
// them have.
double probes_end(const SchemeJob& job, const LazyPlan& plan, double end) {
  const bool every = job.update.controller == "every_layer";
  const std::size_t first = every ? 0 : plan.probes.size() - 1;
  double words = 0.0;
  for (std::size_t probe = first; probe < plan.probes.size(); ++probe) {
    words += static_cast<double>(plan.probes[probe].size);
  }
  return std::max(end, final_seconds(job, plan.probes[first])) +
         allreduce_seconds(job, words, job.ranks);
}

// The iteration that ends a window.
double window_end_seconds(const SchemeJob& job, const LazyPlan& plan, double rest) {
  const double all_final = job.backward.groups.front().seconds;
  double end = job.options.tau > 1.0 ? probes_end(job, plan, rest) : rest;
  double lazy_words = 0.0;
  for (std::size_t group = 0; group < plan.layers; ++group) {
    lazy_words += static_cast<double>(job.backward.groups[group].words);
  }
  end = std::max(end, all_final) + allreduce_seconds(job, lazy_words, job.ranks);
  return std::max(job.backward.end, end);
}

double lazy_seconds(const SchemeJob& job) {
  const LazyPlan plan = lazy_plan(job);
  if (plan.layers == 0) return synchronous_seconds(job);
  const double rest = reduced_from(job, plan.layers);
  const double others = std::max(job.backward.end, rest);
  const double last = window_end_seconds(job, plan, rest);
  return ((job.options.tau - 1.0) * others + last) / job.options.tau + job.update_seconds;
}

// What an average is of.
double averaged_words(const SchemeJob& job) {
  const bool state = job.update.optimizer_state == "average";
  return parameters_of(job) * (state ? 1 + job.options.optimizer_words : 1);
}

double k_step_seconds(const SchemeJob& job) {
  const double average = allreduce_seconds(job, averaged_words(job), job.ranks);
  return job.backward.end + job.update_seconds + average / static_cast<double>(job.update.period);
}

double hierarchical_seconds(const SchemeJob& job) {
  const double words = averaged_words(job);
  double averages = allreduce_seconds(job, words, job.ranks);
  std::int64_t period = job.update.local_period;
  double group = static_cast<double>(
      job.update.group > 0 ? job.update.group : std::int64_t{job.options.ranks_per_node});
  // The averages of a level on which no slower one falls.
  const auto add_level = [&](std::int64_t slower) {
    const auto times = static_cast<double>(job.update.period / period - job.update.period / slower);
    const int ranks = static_cast<int>(std::min(group, static_cast<double>(job.ranks)));
    averages += times * allreduce_seconds(job, words, ranks);
  };
  for (const auto& [slower, ranks] : job.update.levels) {
    add_level(slower);
    period = slower;
    group = ranks;
  }
  add_level(job.update.period);
  return job.backward.end + job.update_seconds + averages / static_cast<double>(job.update.period);
}

// All that the token's way takes in a round: inside a node a number, to the next one the store.
double handover_seconds(const SchemeJob& job) {
  const ScalingOptions& options = job.options;
  const int nodes = (job.ranks - 1) / options.ranks_per_node + 1;
  if (nodes == 1) return job.ranks * options.node.alpha_seconds;
  const double store = (1 + options.optimizer_words) * parameters_of(job);
  const double between =
      2.0 * options.fabric.alpha_seconds + store * word_bytes / options.fabric.bandwidth;
  return (job.ranks - nodes) * options.node.alpha_seconds + nodes * between;
}

// That a worker computes between two turns.
double minibatches_of(const SchemeJob& job, double round) {
  const double compute = job.backward.end;
  if (job.update.delay == "fixed" || compute == 0.0) return 1.0;
  const double minibatches = (round - job.update_seconds) / compute;
  const auto cap = static_cast<double>(job.update.minibatch_cap);
  return cap > 0.0 ? std::min(minibatches, cap) : minibatches;
}

double cyclic_seconds(const SchemeJob& job) {
  const double alone = job.backward.end + job.update_seconds;
  if (job.ranks == 1) return alone;
  const double round = std::max(job.ranks * job.update_seconds + handover_seconds(job), alone);
  return round / minibatches_of(job, round);
}

struct SchemeCost {
  sync::SchemeDescription scheme;
  double (*seconds)(const SchemeJob& job);
};

constexpr std::array costs_of_schemes{
    SchemeCost{sync::synchronous_scheme, synchronous_seconds},
    SchemeCost{sync::lazy_scheme, lazy_seconds},
    SchemeCost{sync::k_step_scheme, k_step_seconds},
    SchemeCost{sync::hierarchical_scheme, hierarchical_seconds},
    SchemeCost{sync::cyclic_scheme, cyclic_seconds},
};

}  // namespace

double step_seconds(const SchemeJob& job) {
  for (const auto& [scheme, seconds] : costs_of_schemes) {
    if (job.update.scheme == scheme.name) return seconds(job);
  }
  throw std::invalid_argument("scaling: no scheme is called " + job.update.scheme);
}

}  // namespace rondo::train
