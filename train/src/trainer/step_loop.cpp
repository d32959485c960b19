// The loop over the steps of an epoch. run_step() has the five steps of train/README.md.
//
// Ranks that go each at a pace of their own ("paced") count their mini-batches; run.step is then
// the number of global batches that all ranks have trained together.

#include "trainer/step_loop.hpp"

#include <array>
#include <cmath>
#include <span>

#include <rondo/train/step_profile.hpp>
#include <rondo/transport/communicator.hpp>
#include <rondo/transport/world.hpp>

#include "trainer/agreement.hpp"

namespace rondo::train {

StepLoop::StepLoop(TrainedState& state, RunRecord& record)
    : state_(state),
      record_(record),
      slow_rank_(state.world, slowness_of(state.experiment, state.world.rank())) {}

void StepLoop::join() {
  link_.emplace(state_);
  check_.emplace(state_, record_.traffic());
}

void StepLoop::run(const std::function<bool()>& stops) {
  if (!state_.trains()) return;  // resumed at its end
  const bool paced = state_.is_paced_now();
  do {
    run_step(next_step(paced));
    report(paced);
  } while (!stops() && !is_over(paced));
  if (paced) meet();
}

StepLoop::Step StepLoop::next_step(bool paced) {
  const RunState& run = state_.run;
  if (!paced) return {false, state_.batches, run.step, run.step};
  return {true, *state_.own_batches, run.minibatch, state_.warm_up_steps + run.minibatch};
}

void StepLoop::run_step(const Step& step) {
  const StepProfile::Step profiled(state_.options.profile, step.index + 1);
  begin(step);
  LossSums sums;
  for (std::int64_t micro_batch = 0; micro_batch < step.batches.micro_batches(); ++micro_batch) {
    const Batch batch = load(step, micro_batch);
    sums.add(forward_backward(step, micro_batch, batch));
  }
  reduce(sums);
  expect_finite(step, sums);  // before the update, so that no parameter is changed by what is not
  update(step);
  count(step, sums);
}

void StepLoop::begin(const Step& step) {
  const std::int64_t all =
      step.paced ? state_.experiment.train.global_batch : step.batches.samples(step.number);
  const std::int64_t global_step =
      step.paced ? state_.step_at(state_.paced_samples()) : state_.run.step;
  state_.scheme->begin(
      {.index = step.index,
       .local_samples = static_cast<std::size_t>(step.batches.own_samples(step.number)),
       .global_samples = static_cast<std::size_t>(all),
       .learning_rate = state_.learning_rate.at(global_step),
       .optimizer_start = state_.run.momenta_from});
}

Batch StepLoop::load(const Step& step, std::int64_t micro_batch) {
  const StepProfile::Part part(state_.options.profile, "load");
  return step.batches.load(step.number, micro_batch);
}

// The scheme begins to reduce the gradients of a layer when they are final.
LossSums StepLoop::forward_backward(const Step& step, std::int64_t micro_batch,
                                    const Batch& batch) {
  link_->begin_micro_batch(micro_batch, step.batches.micro_batches());
  // Ranks that go each at a pace of their own have not a part of the step's samples.
  const std::int64_t others =
      step.paced ? state_.grid.replica() * state_.experiment.train.global_batch : 0;
  const BatchPosition position{
      .step = step.number,
      .first_sample = others + step.batches.first_sample(step.number, micro_batch)};
  const tensor::Loss loss =
      slow_rank_.slowed([&] { return state_.executor->train(batch, *link_, position); });
  state_.grid.shared_statistics().count(batch.samples, state_.statistics);
  if (!std::isfinite(loss.sum)) check_->locate_not_finite(batch, state_.run.step);
  LossSums sums;
  sums.add(loss, state_.executor->counted());
  return sums;
}

// Waits for the sums over a replica; the scheme waits for its own where it updates.
void StepLoop::reduce(const LossSums& sums) {
  const StepProfile::Part part(state_.options.profile, "sums");
  link_->end_step();
  if (const std::optional<std::size_t> block = link_->not_finite()) {
    check_->note_not_finite_gradient(state_.layout.blocks[*block].name, state_.run.step);
  }
  state_.scheme->add_loss(sums.loss);
}

void StepLoop::expect_finite(const Step& step, const LossSums& sums) {
  const bool finite = std::isfinite(sums.loss) && !link_->not_finite();
  if (step.paced) {
    // There is no step in which all ranks could agree. Nothing of this mini-batch has been pushed.
    if (!check_->not_finite().empty()) end_not_finite_alone(state_.world, check_->not_finite());
  } else if (state_.steps_alone()) {  // replicas do not wait for each other's flags
    check_->note_flags(finite, state_.run.step);
  } else {
    check_->exchange_flags(finite, state_.run.step);
  }
}

// Waits for the reductions that backward has not hidden.
void StepLoop::update(const Step& step) {
  {
    const StepProfile::Part part(state_.options.profile, "finish");
    state_.scheme->finish();
  }
  // Which step ends a round and waits for its average, all ranks know alike.
  if (!step.paced && state_.steps_alone()) check_->begin_exchange(!state_.traces.rounds.empty());
}

void StepLoop::count(const Step& step, const LossSums& sums) {
  RunState& run = state_.run;
  if (step.paced) {
    ++run.minibatch;
    run.step = state_.step_at(state_.paced_samples());
    record_.add(run.step + 1, sums);
  } else {
    record_.add(++run.step, sums);
  }
  if (state_.options.on_step) state_.options.on_step();
}

void StepLoop::report(bool paced) {
  const RunState& run = state_.run;
  record_.report_traces();
  if (!paced && (run.step - run.epoch_first) % state_.experiment.train.log_every == 0) {
    settle();
    const double loss = record_.report_step();
    if (state_.sweeps() && state_.options.diverges(loss)) {
      diverged_ = true;
      state_.total_steps = run.step;
    }
  }
  record_.report_progress();
}

bool StepLoop::is_over(bool paced) const {
  if (paced) return state_.scheme->pace()->parked;
  return !state_.trains() || state_.run.step % state_.batches.steps() == 0;
}

// The samples that ranks have pulled differ; the rank that pushed last has pulled all.
void StepLoop::meet() {
  std::array samples{state_.paced_samples()};
  record_.traffic().leave_out_of([&] {
    state_.world.communicator()
        .allreduce(std::span<std::int64_t>(samples), transport::ReduceOp::max)
        .wait();
  });
  state_.run.step = state_.step_at(samples[0]);
  record_.report_pushes();
}

// Flags first: they name the layer, if a loss is not finite. Bytes that move later than this count
// for what comes later.
void StepLoop::settle() {
  check_->settle_flags(state_.run.step);
  state_.complete_parameters();
}

}  // namespace rondo::train
