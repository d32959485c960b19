// What all ranks notice alike in a step.
//
// In every step the ranks exchange two numbers: what was requested of each, and whether its loss
// and its gradients are finite. Where replicas reduce gradients in every step anyway, all have them
// before the update, so that nothing that is not finite changes a parameter. Where they do not, all
// have them one step later, so that no rank waits; then what is not finite may already be in the
// parameters, but it is noticed before a checkpoint or a log line would hold it.
//
// A rank that runs all layers looks at once for what was not finite first. Where several ranks run
// a layer together, only they together can run forward again, so they look after the exchange; not
// after a late one, when the update has brought what is not finite into all that follows.

#include "trainer/step_check.hpp"

#include <algorithm>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include <fmt/format.h>

namespace rondo::train {
namespace {

// `number`: the step, counted from 1.
std::string not_finite_text(std::string_view what, std::int64_t number,
                            std::string_view where = {}) {
  return fmt::format(
      "{} became NaN or Inf in step {}{}{}; a smaller learning rate or a warm-up may help", what,
      number, where.empty() ? "" : ", first in ", where);
}

}  // namespace

StepCheck::StepCheck(transport::World& world, const Parts& parts)
    : world_(world), parts_(parts), flags_(world) {}

void StepCheck::locate_not_finite(const Batch& batch, std::int64_t step) {
  if (!not_finite_.empty()) return;
  std::string where;
  if (parts_.grid.is_whole()) {
    where = parts_.executor.first_not_finite(batch);
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

void StepCheck::exchange_flags(bool finite, std::int64_t step, bool late) {
  const StepFlags mine{.request = own_request(), .not_finite = finite ? 0 : 1};
  const StepFlags all = late ? flags_.exchange_late(mine) : flags_.exchange(mine);
  requested_ = all.request;
  if (all.not_finite == 0) return;
  if (!late && !parts_.grid.is_whole()) {
    const std::string where = parts_.executor.first_not_finite(parts_.batches.load(step, 0));
    if (!where.empty()) not_finite_ = not_finite_text("the loss", step + 1, where);
    found_in_ = step;
  }
  throw_not_finite(late ? step : step + 1);
}

void StepCheck::settle_late_flags(std::int64_t next) {
  const StepFlags late = flags_.settle();
  requested_ = std::max(requested_, late.request);
  if (late.not_finite != 0) throw_not_finite(next);
}

// All ranks come here in the same step. What was found first counts: it has made the parameters of
// its whole replica NaN, and with them the next loss of the others. Where no rank knows more, the
// error names step `number`, counted from 1.
void StepCheck::throw_not_finite(std::int64_t number) {
  std::int64_t first = found_in_;
  world_.communicator().allreduce(std::span(&first, 1), transport::ReduceOp::min).wait();
  agree_on(world_, [&] {
    if (!not_finite_.empty() && found_in_ == first) throw NumericError(not_finite_);
  });
  throw NumericError(not_finite_text("the loss", number));
}

int StepCheck::own_request() const {
  return static_cast<int>(parts_.request ? parts_.request() : RunRequest::none);
}

RunRequest StepCheck::take_request() noexcept {
  return static_cast<RunRequest>(std::exchange(requested_, 0));
}

void StepCheck::postpone_request() noexcept { postponed_ = std::max(postponed_, requested_); }

RunRequest StepCheck::take_request_of_epoch() {
  const int earlier = std::max(std::exchange(requested_, 0), std::exchange(postponed_, 0));
  return static_cast<RunRequest>(
      std::max(earlier, flags_.exchange({.request = own_request()}).request));
}

}  // namespace rondo::train
