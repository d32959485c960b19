// The figures of an epoch: the loss over its samples, and where the time went. Both are added up on
// each rank without communication, and summed over the ranks only where something is reported.

#include "trainer/meters.hpp"

#include <array>
#include <cmath>
#include <limits>
#include <span>
#include <string>

#include <rondo/train/trainer.hpp>
#include <rondo/transport/communicator.hpp>
#include <rondo/transport/world.hpp>

namespace rondo::train {

void LossMeter::start() noexcept {
  own_ = {};
  window_ = {};
  total_ = {};
}

void LossMeter::add(std::int64_t step, const tensor::Loss& loss, std::int64_t samples) noexcept {
  own_.add(loss, samples);
  window_.add(loss, samples);
  if (first_bad_step_ == 0 && !std::isfinite(loss.sum)) first_bad_step_ = step;
}

LossSums LossMeter::reduce() {
  // A loss that is not finite makes the sum so, and with it the decision of every rank.
  const auto [loss, correct, samples] =
      sum_over_ranks(world_, std::array{window_.loss, window_.correct, window_.samples});
  if (!std::isfinite(loss)) report_not_finite();
  const LossSums reduced{loss, correct, samples};
  total_.add(reduced);
  window_ = {};
  return reduced;
}

void LossMeter::report_not_finite() {
  constexpr std::int64_t never = std::numeric_limits<std::int64_t>::max();
  std::array first{first_bad_step_ == 0 ? never : first_bad_step_};
  world_.communicator().allreduce(std::span<std::int64_t>(first), transport::ReduceOp::min).wait();
  throw NumericError("the loss became NaN or Inf in step " + std::to_string(first[0]) +
                     "; a smaller learning rate or a warm-up may help");
}

namespace {

double seconds_of(std::chrono::nanoseconds duration) {
  return std::chrono::duration<double>(duration).count();
}

// Through shared memory, and in messages.
std::uint64_t bytes_of(const transport::Counters& counters) {
  return counters.moved_bytes() + counters.sent_bytes;
}

}  // namespace

void TrafficMeter::start() {
  began_ = std::chrono::steady_clock::now();
  at_start_ = world_.counters();
  bookkeeping_bytes_ = 0;
}

void TrafficMeter::begin_bookkeeping() { bookkeeping_from_ = bytes_of(world_.counters()); }

void TrafficMeter::end_bookkeeping() {
  bookkeeping_bytes_ += bytes_of(world_.counters()) - bookkeeping_from_;
}

Traffic TrafficMeter::read() const {
  const transport::Counters now = world_.counters();
  const std::uint64_t moved = bytes_of(now) - bytes_of(at_start_) - bookkeeping_bytes_;
  return {.seconds = seconds_of(std::chrono::steady_clock::now() - began_),
          .communicating = seconds_of(now.communicating - at_start_.communicating),
          .waiting = seconds_of(now.waiting - at_start_.waiting),
          .bytes = static_cast<double>(moved)};
}

}  // namespace rondo::train
