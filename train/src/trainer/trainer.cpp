#include "trainer/trainer.hpp"

#include <algorithm>
#include <string>

#include <rondo/transport/communicator.hpp>
#include <rondo/transport/world.hpp>

#include "trainer/update.hpp"

namespace rondo::train {
namespace {

const Experiment& checked(const Experiment& experiment, const transport::World& world) {
  if (experiment.train.global_batch < world.size()) {
    throw ConfigError("train.global_batch: a batch of " +
                      std::to_string(experiment.train.global_batch) +
                      " is smaller than the ranks (" + std::to_string(world.size()) +
                      "); give every rank a sample, or start fewer ranks");
  }
  return experiment;
}

LoaderOptions loader_options(const Experiment& experiment, const transport::World& world) {
  const std::int64_t batch = experiment.train.global_batch;
  return {.global_batch = batch,
          .seed = static_cast<std::uint64_t>(experiment.train.seed),
          .crop_padding = experiment.data.crop,
          .flip = experiment.data.flip,
          .largest_range = (batch + world.size() - 1) / world.size()};
}

std::int64_t steps_of_run(const Experiment& experiment, const Loader& loader) {
  const std::int64_t all = experiment.train.epochs * loader.steps();
  const std::int64_t most = experiment.train.max_steps;
  return most > 0 ? std::min(most, all) : all;
}

}  // namespace

Trainer::Trainer(transport::World& world, const Experiment& experiment,
                 const TrainerOptions& options, RunLog& log)
    : world_(world),
      log_(log),
      on_step_(options.on_step),
      experiment_(checked(experiment, world)),
      threads_(options.threads),
      material_(make_material(experiment_)),
      layout_(layout_of(material_.model)),
      parameters_(layout_.parameter_count, 0.0F, &world.arena()),
      gradients_(layout_.parameter_count, 0.0F, &world.arena()),
      statistics_(layout_.statistic_count, 0.0F),
      evaluated_parameters_(layout_.parameter_count, 0.0F),
      evaluated_statistics_(layout_.statistic_count, 0.0F),
      loader_(material_.dataset, loader_options(experiment_, world)),
      engine_(options.threads),
      executor_(engine_, material_.model, {parameters_, gradients_, statistics_},
                executor_options()),
      scheme_(make_scheme(experiment_, replica(), options.team)),
      link_(*scheme_, world),
      total_steps_(steps_of_run(experiment_, loader_)),
      learning_rate_(learning_rate_of(experiment_, loader_.steps(), total_steps_)),
      losses_(world),
      traffic_(world) {
  initialize(layout_, static_cast<std::uint64_t>(experiment_.train.seed), parameters_, statistics_);
}

ExecutorOptions Trainer::executor_options() const {
  ExecutorOptions options;
  for (const std::int64_t step : {std::int64_t{0}, loader_.steps() - 1}) {
    const std::int64_t mine = share_of(loader_.samples(step), world_.rank(), world_.size()).size();
    if (mine > 0) options.training_batches.push_back(mine);
  }
  const auto repeated = std::ranges::unique(options.training_batches);
  options.training_batches.erase(repeated.begin(), repeated.end());
  options.label_smoothing = static_cast<float>(experiment_.train.label_smoothing);
  return options;
}

// Data-parallel: every rank is a replica of its own, and holds all of every layer.
sync::Replica Trainer::replica() {
  transport::Communicator& all = world_.communicator();
  sync::Replica result{&world_, parameters_, gradients_, statistics_, {}};
  for (const ParameterGroup& group : layout_.groups) {
    result.layers.push_back({group.name, group.offset, group.size, {nullptr, &all, &all}});
  }
  return result;
}

/// This rank's samples of step `step` of the run.
SampleRange Trainer::range_of(std::int64_t step) const {
  const std::int64_t of_epoch = step % loader_.steps();
  const Share share = share_of(loader_.samples(of_epoch), world_.rank(), world_.size());
  return {
      .epoch = step / loader_.steps(), .step = of_epoch, .first = share.first, .last = share.last};
}

EpochMetrics Trainer::run_epoch() {
  const sync::SchemeCounters before = scheme_->counters();
  epoch_first_ = step_;
  losses_.start();
  traffic_.start();
  do {
    run_step();
    const std::int64_t in_epoch = step_ - epoch_first_;
    if (experiment_.train.log_every > 0 && in_epoch % experiment_.train.log_every == 0) {
      report_step();
    }
    report_progress();
  } while (!done() && step_ % loader_.steps() != 0);
  return epoch_metrics(before);
}

void Trainer::run_step() {
  const SampleRange range = range_of(step_);
  const Batch batch = loader_.load(range);
  if (step_ + 1 < total_steps_) loader_.prefetch(range_of(step_ + 1));
  scheme_->begin({.index = step_,
                  .local_samples = static_cast<std::size_t>(batch.samples),
                  .global_samples = static_cast<std::size_t>(loader_.samples(range.step)),
                  .learning_rate = learning_rate_.at(step_)});
  const tensor::Loss loss = executor_.train(batch, link_);
  scheme_->finish();
  ++step_;
  losses_.add(step_, loss, batch.samples);
  if (on_step_) on_step_();
}

LossSums Trainer::reduce_losses() {
  traffic_.begin_bookkeeping();
  const LossSums window = losses_.reduce();
  traffic_.end_bookkeeping();
  return window;
}

}  // namespace rondo::train
