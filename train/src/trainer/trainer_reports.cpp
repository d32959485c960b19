// What a Trainer tells: before the run, after a step, at a log point, after an epoch.

#include <algorithm>
#include <array>
#include <string>

#include <rondo/transport/world.hpp>

#include "trainer/rank_sums.hpp"
#include "trainer/trainer.hpp"

namespace rondo::train {
namespace {

std::string counted(std::int64_t count, const std::string& noun) {
  return std::to_string(count) + " " + noun + (count == 1 ? "" : "s");
}

std::string size_of_pictures(const tensor::Shape& shape) {
  return std::to_string(shape.h) + "x" + std::to_string(shape.w) + "x" + std::to_string(shape.c);
}

double images_per_second(double samples, double seconds) {
  return seconds > 0.0 ? samples / seconds : 0.0;
}

}  // namespace

StartEvent Trainer::start_event() const {
  StartEvent event{.config = to_toml(experiment_),
                   .ranks = world_.size(),
                   .threads = threads_,
                   .nodes = world_.nodes(),
                   .route = world_.route(),
                   .global_batch = experiment_.train.global_batch,
                   .data = experiment_.data.name,
                   .training_images = material_.dataset.training.shape.n,
                   .test_images = material_.dataset.test.shape.n,
                   .model = material_.model.name,
                   .parameters = static_cast<std::int64_t>(layout_.parameter_count),
                   .seed = experiment_.train.seed,
                   .steps_per_epoch = loader_.steps(),
                   .total_steps = total_steps_};
  for (const transport::RankInfo& rank : world_.ranks()) event.hosts.push_back(rank.host);
  for (int rank = 0; rank < world_.size(); ++rank) {
    event.rank_batches.push_back(share_of(event.global_batch, rank, world_.size()).size());
  }
  return event;
}

void Trainer::announce() const {
  if (!log_.active()) return;
  const StartEvent event = start_event();
  // Shares differ by one at most: the first is the smallest, the last the largest.
  const std::string smallest = std::to_string(event.rank_batches.front());
  const std::string largest = std::to_string(event.rank_batches.back());
  log_.note("model " + event.model + ": " + counted(event.parameters, "parameter") + ", " +
            std::to_string(material_.model.classes) + " classes");
  log_.note("data " + event.data + ": " + std::to_string(event.training_images) + " training and " +
            std::to_string(event.test_images) + " test pictures of " +
            size_of_pictures(material_.model.input));
  log_.note("ranks " + std::to_string(event.ranks) + " x " + counted(event.threads, "thread") +
            (world_.oversubscribed() ? ", more than there are CPUs" : ""));
  if (event.nodes > 1) {
    log_.note("nodes " + std::to_string(event.nodes) + ", joined by " + event.route);
  }
  log_.note("batch " + std::to_string(event.global_batch) + " in all, " +
            (smallest == largest ? smallest : smallest + " or " + largest) + " per rank; " +
            counted(event.steps_per_epoch, "step") + " per epoch, " +
            std::to_string(event.total_steps) + " in all");
  log_.start(event);
}

void Trainer::report_step() {
  const LossSums window = reduce_losses();
  log_.step(
      {.epoch = epoch_first_ / loader_.steps() + 1,
       .step = step_ - epoch_first_,
       .total_step = step_,
       .loss = window.mean_loss(),
       .training_accuracy = window.accuracy(),
       .learning_rate = learning_rate_.at(step_ - 1),
       .images_per_second = images_per_second(losses_.total().samples, traffic_.read().seconds)});
}

void Trainer::report_progress() const {
  if (!log_.active()) return;
  const Traffic traffic = traffic_.read();
  const std::int64_t done = step_ - epoch_first_;
  const std::int64_t trained =
      std::min(done * experiment_.train.global_batch, material_.dataset.training.shape.n);
  log_.progress(
      {.epoch = epoch_first_ / loader_.steps() + 1,
       .epochs = (total_steps_ + loader_.steps() - 1) / loader_.steps(),
       .step = done,
       .steps = loader_.steps(),
       .loss = losses_.own().mean_loss(),
       .accuracy = losses_.own().accuracy(),
       .images_per_second = images_per_second(static_cast<double>(trained), traffic.seconds),
       .communication_share = traffic.communication_share(),
       .seconds_left = traffic.seconds / static_cast<double>(done) *
                       static_cast<double>(total_steps_ - step_)});
}

EpochMetrics Trainer::epoch_metrics(const sync::SchemeCounters& before) {
  static_cast<void>(reduce_losses());
  const Traffic own = traffic_.read();
  const sync::SchemeCounters trained = scheme_->counters();
  const auto [seconds, communicating, waiting, bytes] =
      sum_over_ranks(world_, std::array{own.seconds, own.communicating, own.waiting, own.bytes});
  const Evaluation judged = evaluate();
  const LossSums& losses = losses_.total();
  const double mean_seconds = seconds / world_.size();
  const EpochMetrics metrics{
      .epoch = epoch_first_ / loader_.steps() + 1,
      .loss = losses.mean_loss(),
      .accuracy = judged.sums.accuracy(),
      .training_accuracy = losses.accuracy(),
      .test_loss = judged.sums.mean_loss(),
      .images_per_second = images_per_second(losses.samples, mean_seconds),
      .seconds = mean_seconds,
      .evaluation_seconds = judged.seconds,
      .communication_share = communicating / seconds,
      .wait_share = waiting / seconds,
      .global_reductions = trained.global_reductions - before.global_reductions,
      .local_reductions = trained.local_reductions - before.local_reductions,
      .evaluation_reductions =
          scheme_->counters().evaluation_reductions - before.evaluation_reductions,
      .bytes_sent = static_cast<std::uint64_t>(bytes),
      .parameter_hash = judged.parameter_hash};
  log_.epoch(metrics);
  return metrics;
}

}  // namespace rondo::train
