// The figures of an epoch: the loss over its samples, and where the time went. Both are added up on
// each rank without communication, and summed over the ranks only where something is reported.

#include "trainer/meters.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>
#include <limits>
#include <span>
#include <string>

#include <rondo/train/trainer.hpp>
#include <rondo/transport/communicator.hpp>
#include <rondo/transport/world.hpp>

#include "trainer/agreement.hpp"

namespace rondo::train {

LossMeter::LossMeter(transport::World& world, TrafficMeter& traffic)
    : world_(world), traffic_(traffic), all_(world.communicator().split(0, world.rank())) {}

void LossMeter::join() {
  const std::uint64_t before = bytes_moved(world_);
  static_cast<void>(reduce());
  bytes_ = bytes_moved(world_) - before;
}

void LossMeter::start() noexcept {
  own_ = {};
  window_ = {};
  total_ = {};
}

void LossMeter::add(std::int64_t step, const LossSums& sums) noexcept {
  own_.add(sums);
  window_.add(sums);
  if (first_bad_step_ == 0 && !std::isfinite(sums.loss)) first_bad_step_ = step;
}

void LossMeter::restore(const State& state) noexcept {
  own_ = state.own;
  window_ = state.window;
  total_ = state.total;
}

LossSums LossMeter::reduce() {
  // A loss that is not finite makes the sum so, and with it the decision of every rank.
  const auto [loss, correct, samples] =
      sum_over_ranks(all_, std::array{window_.loss, window_.correct, window_.samples});
  if (!std::isfinite(loss)) report_not_finite();
  const LossSums reduced{loss, correct, samples};
  total_.add(reduced);
  traffic_.leave_out(bytes_);
  window_ = {};
  return reduced;
}

void LossMeter::report_not_finite() {
  constexpr std::int64_t never = std::numeric_limits<std::int64_t>::max();
  std::array first{first_bad_step_ == 0 ? never : first_bad_step_};
  all_.allreduce(std::span<std::int64_t>(first), transport::ReduceOp::min).wait();
  throw_on_all("the loss became NaN or Inf in step " + std::to_string(first[0]) +
               "; a smaller learning rate or a warm-up may help");
}

namespace {

double seconds_of(std::chrono::nanoseconds duration) {
  return std::chrono::duration<double>(duration).count();
}

std::uint64_t bytes_of(const transport::Counters& counters) {
  return counters.moved_bytes() + counters.sent_bytes;
}

}  // namespace

std::uint64_t bytes_moved(const transport::World& world) { return bytes_of(world.counters()); }

void TrafficMeter::start(const Traffic& before) {
  before_ = before;
  began_ = std::chrono::steady_clock::now();
  at_start_ = world_.counters();
  own_bytes_ = 0;
}

Traffic TrafficMeter::read() const {
  const transport::Counters now = world_.counters();
  // What is left out may not have moved yet.
  const std::uint64_t all = bytes_of(now) - bytes_of(at_start_);
  const std::uint64_t moved = all - std::min(all, own_bytes_);
  return {.seconds = before_.seconds + seconds_of(std::chrono::steady_clock::now() - began_),
          .communicating =
              before_.communicating + seconds_of(now.communicating - at_start_.communicating),
          .waiting = before_.waiting + seconds_of(now.waiting - at_start_.waiting),
          .bytes = before_.bytes + static_cast<double>(moved)};
}

}  // namespace rondo::train
