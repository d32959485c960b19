// The figures of an epoch: the loss over its samples, and where the time went. Both are added up on
// each rank without communication, and summed over the ranks only where something is reported.
//
// Then the running statistics of batch norm, where several ranks of a replica measure the same
// channels of other pixels. Each keeps its own running values; where those of the whole are needed,
// as for an evaluation, they are averaged, weighted by how much of the initial values each rank has
// left behind.

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

#include "executor/lowering.hpp"

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

void LossMeter::restore(const State& state) noexcept {
  own_ = state.own;
  window_ = state.window;
  total_ = state.total;
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

std::uint64_t bytes_of(const transport::Counters& counters) {
  return counters.moved_bytes() + counters.sent_bytes;
}

}  // namespace

std::uint64_t bytes_moved(const transport::World& world) { return bytes_of(world.counters()); }

void TrafficMeter::start(const Traffic& before) {
  before_ = before;
  began_ = std::chrono::steady_clock::now();
  at_start_ = world_.counters();
  bookkeeping_bytes_ = 0;
}

// What a run sends to watch itself (flags, checkpoints) is no cost of its update scheme.
void TrafficMeter::begin_bookkeeping() { bookkeeping_from_ = bytes_moved(world_); }

void TrafficMeter::end_bookkeeping() {
  bookkeeping_bytes_ += bytes_moved(world_) - bookkeeping_from_;
}

Traffic TrafficMeter::read() const {
  const transport::Counters now = world_.counters();
  // What is left out may not have moved yet.
  const std::uint64_t all = bytes_of(now) - bytes_of(at_start_);
  const std::uint64_t moved = all - std::min(all, bookkeeping_bytes_);
  return {.seconds = before_.seconds + seconds_of(std::chrono::steady_clock::now() - began_),
          .communicating =
              before_.communicating + seconds_of(now.communicating - at_start_.communicating),
          .waiting = before_.waiting + seconds_of(now.waiting - at_start_.waiting),
          .bytes = before_.bytes + static_cast<double>(moved)};
}

namespace {

double initial_value(const Parameter& statistic) {
  return statistic.initial == Initial::ones ? 1.0 : 0.0;
}

std::vector<Parameter> statistics_of(const ParameterLayout& layout, const std::string& layer) {
  std::vector<Parameter> statistics;
  std::ranges::copy_if(layout.statistics, std::back_inserter(statistics),
                       [&](const Parameter& statistic) { return statistic.layer() == layer; });
  return statistics;
}

}  // namespace

SharedStatistics::SharedStatistics(const Model& model, const GridChoice& choice,
                                   const ParameterLayout& layout, int position)
    : layout_size_(layout.statistic_count) {
  if (choice.batch_norm != BatchNormGroup::rank) return;  // they measure together
  const int ranks = choice.grid.pr;
  const Lowering lowering = lower(model, choice.splits, ranks, ranks);  // an image for every part
  for (std::size_t node = 0; node < lowering.graph.nodes.size(); ++node) {
    if (!lowering.graph.nodes[node].batch_norm) continue;
    const Partition& x = lowering.layouts[node].x;
    const Parts& parts = x.parts();
    if (parts.n * parts.h * parts.w == 1) continue;
    const LayerSpec& layer = model.layers[*lowering.graph.nodes[node].layer];
    layers_.push_back({.statistics = statistics_of(layout, layer.name),
                       .kept = 1.0F - layer.kind->traits().momentum,
                       .has_pixels = !x.box_of(position).empty(),
                       .parts = parts.n,
                       .part = x.block_of(position) / (parts.h * parts.w * parts.c)});
  }
}

void SharedStatistics::start(std::span<float> statistics) const {
  std::ranges::fill(statistics.subspan(layout_size_), 1.0F);
}

void SharedStatistics::count(std::int64_t images, std::span<float> statistics) const {
  auto left = statistics.begin() + static_cast<std::ptrdiff_t>(layout_size_);
  for (const Layer& layer : layers_) {
    const Range own = even_range(images, layer.parts, layer.part);
    if (layer.has_pixels && !own.empty()) *left *= layer.kept;
    ++left;
  }
}

// Of every layer how much it is, then the values.
std::vector<double> SharedStatistics::measured(std::span<const float> statistics) const {
  std::vector<double> measured;
  auto next = statistics.subspan(layout_size_).begin();
  for (const Layer& layer : layers_) {
    // `left` is the share of the initial value that is still in the running one: (1 - momentum) to
    // the power of the batches seen. What was measured is the value without that share.
    const double left = *next++;
    measured.push_back(1.0 - left);
    for (const Parameter& statistic : layer.statistics) {
      const double initial = left * initial_value(statistic);
      for (const float value : statistics.subspan(statistic.offset, statistic.size())) {
        measured.push_back(value - initial);
      }
    }
  }
  return measured;
}

void SharedStatistics::average(transport::Communicator& group, std::span<float> statistics) const {
  std::vector<double> sums = measured(statistics);
  group.allreduce(std::span(sums)).wait();
  const std::span<float> least = statistics.subspan(layout_size_);
  group.allreduce(least, transport::ReduceOp::min).wait();

  auto next = sums.begin();
  auto next_left = least.begin();
  for (const Layer& layer : layers_) {
    const double left = *next_left++;
    const double weight = *next++;
    for (const Parameter& statistic : layer.statistics) {
      for (float& value : statistics.subspan(statistic.offset, statistic.size())) {
        const double sum = *next++;
        if (weight == 0.0) continue;  // nobody has measured
        value = static_cast<float>(left * initial_value(statistic) + (1.0 - left) * sum / weight);
      }
    }
  }
}

}  // namespace rondo::train
