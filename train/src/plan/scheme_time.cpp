#include "plan/scheme_time.hpp"

#include <algorithm>
#include <stdexcept>

#include <rondo/sync/lazy.hpp>

#include "config/combinations.hpp"
#include "plan/collective_cost.hpp"
#include "trainer/lazy_plan.hpp"

namespace rondo::train {
namespace {

constexpr double word_bytes = 4.0;

double allreduce_seconds(const SchemeJob& job, double words, int ranks) {
  const PlanOptions links{.fabric = job.options.fabric,
                          .node = job.options.node,
                          .ranks_per_node = job.options.ranks_per_node};
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

// The iteration that ends a window.
double window_end_seconds(const SchemeJob& job, const LazyPlan& plan, double rest) {
  const double all_final = job.backward.groups.front().seconds;
  double end = rest;
  if (job.options.tau > 1.0) {
    const sync::Probe& probe = plan.probes.back();
    std::size_t group = 0;
    for (std::size_t offset = 0; offset < probe.offset; ++group) {
      offset += job.backward.groups[group].words;
    }
    end = std::max(end, job.backward.groups[group].seconds) +
          allreduce_seconds(job, static_cast<double>(probe.size), job.ranks);
  }
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

double k_step_seconds(const SchemeJob& job) {
  const double average = allreduce_seconds(job, parameters_of(job), job.ranks);
  return job.backward.end + job.update_seconds + average / static_cast<double>(job.update.period);
}

double hierarchical_seconds(const SchemeJob& job) {
  const std::int64_t wanted = job.update.group > 0 ? job.update.group : job.options.ranks_per_node;
  const auto group = static_cast<int>(std::min<std::int64_t>(wanted, job.ranks));
  const double locals = static_cast<double>(job.update.period / job.update.local_period - 1);
  const double words = parameters_of(job);
  const double averages =
      locals * allreduce_seconds(job, words, group) + allreduce_seconds(job, words, job.ranks);
  return job.backward.end + job.update_seconds + averages / static_cast<double>(job.update.period);
}

double cyclic_seconds(const SchemeJob& job) {
  const double compute = job.backward.end;
  if (job.ranks == 1) return compute + job.update_seconds;
  const bool one_node = job.ranks <= job.options.ranks_per_node;
  const LinkCost& link = one_node ? job.options.node : job.options.fabric;
  const double turn = 3.0 * link.alpha_seconds +
                      2.0 * word_bytes * parameters_of(job) / link.bandwidth + job.update_seconds;
  const double round = std::max(job.ranks * turn, compute + turn);
  if (job.update.delay == "fixed") return round;
  return compute == 0.0 ? round : round / ((round - turn) / compute);
}

}  // namespace

double step_seconds(const SchemeJob& job) {
  if (job.update.scheme == "synchronous") return synchronous_seconds(job);
  if (job.update.scheme == "lazy") return lazy_seconds(job);
  if (job.update.scheme == "k_step") return k_step_seconds(job);
  if (job.update.scheme == "hierarchical") return hierarchical_seconds(job);
  if (job.update.scheme == "cyclic") return cyclic_seconds(job);
  throw std::invalid_argument("scaling: no scheme is called " + job.update.scheme);
}

}  // namespace rondo::train
