// The facts that all ranks notice alike in a step.
//
// The ranks exchange two numbers: what was requested of each, and whether its loss and its
// gradients are finite. Where replicas reduce gradients in every step anyway, they do so in every
// step, before the update, so that nothing that is not finite changes a parameter.
//
// Where replicas step alone, an exchange in every step would bring back what they save: each would
// wait for the slowest, for the latency of the network, and behind an average that overlaps with
// steps for all of it. So they exchange the numbers when a round's average has arrived, which they
// have waited for anyway, and at least about once a second, and know them a step later. What is not
// finite may be in the parameters by then, but it is noticed before a checkpoint or a log line
// would hold it.
//
// A rank that runs all layers looks at once for what was not finite first. Where several ranks run
// a layer together, only they together can run forward again, so they look after the exchange; not
// after a late one, when the update has brought what is not finite into all that follows.

#include "trainer/step_check.hpp"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include <rondo/transport/world.hpp>

#include "trainer/agreement.hpp"

namespace rondo::train {
namespace {

// Between exchanges of ranks that do not meet.
constexpr std::chrono::duration<double> interval{1.0};
constexpr std::chrono::duration<double> tick{1e-6};
constexpr double most_steps = 1e6;

// `number`: the step, counted from 1.
std::string not_finite_text(std::string_view what, std::int64_t number,
                            std::string_view where = {}) {
  return fmt::format(
      "{} became NaN or Inf in step {}{}{}; a smaller learning rate or a warm-up may help", what,
      number, where.empty() ? "" : ", first in ", where);
}

}  // namespace

StepCheck::StepCheck(TrainedState& state, TrafficMeter& traffic)
    : state_(state),
      traffic_(traffic),
      all_(state.world.communicator().split(0, state.world.rank())) {
  const std::uint64_t before = bytes_moved(state.world);
  exchange({});
  bytes_ = bytes_moved(state.world) - before;
}

StepCheck::Flags StepCheck::both(const Flags& a, const Flags& b) noexcept {
  return {.request = std::max(a.request, b.request),
          .not_finite = std::max(a.not_finite, b.not_finite),
          .steps = std::max(a.steps, b.steps)};
}

// Begins an exchange of what was noted, while none is under way.
void StepCheck::begin() {
  traffic_.leave_out(bytes_);
  const Flags mine = std::exchange(noted_, {});
  flags_ = {mine.request, mine.not_finite, mine.steps};
  request_ = all_.allreduce(std::span<int>(flags_), transport::ReduceOp::max);
}

// The result of the exchange that is under way, if one is.
StepCheck::Flags StepCheck::settle() {
  request_.wait();
  const auto [request, not_finite, steps] = std::exchange(flags_, {});
  return {.request = request, .not_finite = not_finite, .steps = steps};
}

// All flags until now that were not told yet.
StepCheck::Flags StepCheck::exchange(const Flags& mine) {
  const Flags late = settle();
  note(mine);
  begin();
  return both(late, settle());
}

void StepCheck::locate_not_finite(const Batch& batch, std::int64_t step) {
  if (!not_finite_.empty()) return;
  std::string where;
  if (state_.grid.is_whole()) {
    where = state_.executor->first_not_finite(batch);
    if (where.empty()) where = "the loss itself";
  }
  not_finite_ = not_finite_text("the loss", step + 1, where);
  found_in_ = step;
}

void StepCheck::note_not_finite_gradient(const std::string& layer, std::int64_t step) {
  if (!not_finite_.empty()) return;  // a loss before it, whose gradients are not finite either
  not_finite_ = not_finite_text("the gradient of layer " + layer, step + 1);
  found_in_ = step;
}

void StepCheck::exchange_flags(bool finite, std::int64_t step) {
  const Flags all = exchange({.request = own_request(), .not_finite = finite ? 0 : 1});
  requested_ = all.request;
  if (all.not_finite == 0) return;
  if (!state_.grid.is_whole()) {
    find_on_grid(step);
    found_in_ = step;
  }
  throw_not_finite(step + 1);
}

// The ranks of a replica compute together, so all look through all of them.
void StepCheck::find_on_grid(std::int64_t step) {
  std::string first;
  for (std::int64_t part = 0; part < state_.batches.micro_batches(); ++part) {
    const std::string where = state_.executor->first_not_finite(state_.batches.load(step, part));
    if (first.empty()) first = where;
  }
  if (!first.empty()) not_finite_ = not_finite_text("the loss", step + 1, first);
}

void StepCheck::note_flags(bool finite, std::int64_t step) {
  requested_ = 0;
  take(settle(), step);
  note({.request = own_request(), .not_finite = finite ? 0 : 1});
  steps_ += 1;
}

void StepCheck::begin_exchange(bool met) {
  if (!met && steps_ < next_after_) return;
  note({.steps = count_steps()});
  begin();
}

void StepCheck::settle_flags(std::int64_t next) {
  take(settle(), next);
  if (steps_ == 0) return;
  take(exchange({.steps = count_steps()}), next);
}

// How many of this rank's steps take an interval, by those since the exchange before.
int StepCheck::count_steps() {
  const auto now = std::chrono::steady_clock::now();
  const std::chrono::duration<double> passed = now - std::exchange(last_exchange_, now);
  const double steps = std::exchange(steps_, 0) * (interval / std::max(passed, tick));
  return static_cast<int>(std::clamp(steps, 1.0, most_steps));
}

// Ends with what some rank has found; where none knows more, the error names step `number`, counted
// from 1.
void StepCheck::take(const Flags& all, std::int64_t number) {
  requested_ = std::max(requested_, all.request);
  if (all.steps > 0) next_after_ = all.steps;
  if (all.not_finite != 0) throw_not_finite(number);
}

// All ranks come here in the same step. What was found first counts: it has made the parameters of
// its whole replica NaN, and with them the next loss of the others. Where no rank knows more, the
// error names step `number`, counted from 1.
void StepCheck::throw_not_finite(std::int64_t number) {
  std::int64_t first = found_in_;
  state_.world.communicator().allreduce(std::span(&first, 1), transport::ReduceOp::min).wait();
  agree_on(state_.world, [&] {
    if (!not_finite_.empty() && found_in_ == first) throw NumericError(not_finite_);
  });
  throw_on_all(not_finite_text("the loss", number));
}

int StepCheck::own_request() {
  const RunRequest now = state_.options.request ? state_.options.request() : RunRequest::none;
  return std::max(static_cast<int>(now), std::exchange(own_left_, 0));
}

void StepCheck::take_answered() {
  const int own = own_request();
  if (own == static_cast<int>(RunRequest::checkpoint_and_stop)) own_left_ = own;
}

RunRequest StepCheck::take_request() noexcept {
  return static_cast<RunRequest>(std::exchange(requested_, 0));
}

void StepCheck::postpone_request() noexcept { postponed_ = std::max(postponed_, requested_); }

RunRequest StepCheck::take_request_of_epoch() {
  const int earlier = std::max(std::exchange(requested_, 0), std::exchange(postponed_, 0));
  return static_cast<RunRequest>(std::max(earlier, exchange({.request = own_request()}).request));
}

}  // namespace rondo::train
