// How a Trainer trains where every rank goes at a pace of its own: mini-batches of its own, until
// the scheme parks the ranks at the end of an epoch.

#include <algorithm>
#include <array>
#include <span>

#include <rondo/transport/world.hpp>

#include "trainer/trainer.hpp"
#include "trainer/update.hpp"

namespace rondo::train {

bool Trainer::is_paced_now() const noexcept {
  return is_paced(experiment_) && step_ >= warm_up_steps_;
}

// Samples that all ranks have trained since the warm-up, as far as this rank's parameters tell.
std::int64_t Trainer::paced_samples() const noexcept {
  const std::optional<sync::Pace> pace = scheme_->pace();
  return pace ? pace->samples : 0;
}

std::int64_t Trainer::step_at(std::int64_t paced_samples) const noexcept {
  const std::int64_t steps = paced_samples / experiment_.train.global_batch;
  return std::min(warm_up_steps_ + steps, total_steps_);
}

void Trainer::run_paced_steps() {
  do {
    run_paced_step();
    report_progress();
  } while (!scheme_->pace()->parked);
  // What a rank has pulled differs; the rank that pushed last has pulled all.
  std::array samples{paced_samples()};
  traffic_.begin_bookkeeping();
  world_.communicator()
      .allreduce(std::span<std::int64_t>(samples), transport::ReduceOp::max)
      .wait();
  traffic_.end_bookkeeping();
  step_ = step_at(samples[0]);
  report_pushes();
}

void Trainer::run_paced_step() {
  const std::int64_t mine = own_batches_->own_samples(minibatch_);
  scheme_->begin({.index = warm_up_steps_ + minibatch_,
                  .local_samples = static_cast<std::size_t>(mine),
                  .global_samples = static_cast<std::size_t>(experiment_.train.global_batch),
                  .learning_rate = learning_rate_.at(step_at(paced_samples()))});
  const tensor::Loss loss = compute(*own_batches_, minibatch_);
  scheme_->finish();
  ++minibatch_;
  step_ = step_at(paced_samples());
  losses_.add(step_ + 1, loss, grid_.speaks() ? mine : 0);
  if (on_step_) on_step_();
}

void Trainer::report_pushes() {
  if (!grid_.speaks()) traces_.pushes.clear();
  traffic_.begin_bookkeeping();
  log_.pushes(gather_pushes(world_, traces_.pushes));
  traffic_.end_bookkeeping();
  traces_.pushes.clear();
}

}  // namespace rondo::train
