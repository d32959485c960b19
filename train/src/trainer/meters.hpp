#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <rondo/tensor/elementwise.hpp>
#include <rondo/train/model.hpp>
#include <rondo/train/parameters.hpp>
#include <rondo/transport/communicator.hpp>
#include <rondo/transport/world.hpp>

#include "config/grid_choice.hpp"

namespace rondo::train {

/// Loss and correct answers summed over some samples.
struct LossSums {
  double loss = 0.0;
  double correct = 0.0;
  double samples = 0.0;

  void add(const tensor::Loss& of_batch, std::int64_t batch_samples) noexcept {
    loss += of_batch.sum;
    correct += static_cast<double>(of_batch.correct);
    samples += static_cast<double>(batch_samples);
  }
  void add(const LossSums& other) noexcept {
    loss += other.loss;
    correct += other.correct;
    samples += other.samples;
  }

  [[nodiscard]] double mean_loss() const noexcept { return loss / std::max(1.0, samples); }
  /// In percent.
  [[nodiscard]] double accuracy() const noexcept {
    return 100.0 * correct / std::max(1.0, samples);
  }
};

/// The element-wise sum over all ranks, the same bits on each. Collective.
template <std::size_t N>
[[nodiscard]] std::array<double, N> sum_over_ranks(transport::Communicator& all,
                                                   std::array<double, N> values) {
  all.allreduce(std::span<double>(values)).wait();
  return values;
}

template <std::size_t N>
[[nodiscard]] std::array<double, N> sum_over_ranks(transport::World& world,
                                                   std::array<double, N> values) {
  return sum_over_ranks(world.communicator(), values);
}

/// A part of some seconds, per second; 0 of none.
[[nodiscard]] constexpr double per_second(double part, double seconds) noexcept {
  return seconds > 0.0 ? part / seconds : 0.0;
}

/// Where the time of one epoch's training went on this rank, and what it moved.
struct Traffic {
  double seconds = 0.0;
  double communicating = 0.0;  ///< seconds in transport calls after the last rank's arrival
  double waiting = 0.0;        ///< seconds in transport calls before it
  double bytes = 0.0;          ///< moved between ranks by the update scheme

  [[nodiscard]] double communication_share() const noexcept {
    return per_second(communicating, seconds);
  }
};

/// Bytes that this rank has moved: through shared memory, and in messages.
[[nodiscard]] std::uint64_t bytes_moved(const transport::World& world);

/// Measures from start() to read(). The few bytes by which a run watches itself (flags,
/// checkpoints) are no cost of its update scheme: they count as time and not as bytes.
class TrafficMeter {
 public:
  explicit TrafficMeter(const transport::World& world) noexcept : world_(world) {}

  /// `before`: what the epoch had when its run was interrupted.
  void start(const Traffic& before = {});
  /// So many bytes that are being moved are the trainer's own.
  void leave_out(std::uint64_t bytes) noexcept { own_bytes_ += bytes; }
  /// The bytes that `work` moves are.
  template <typename Work>
  void leave_out_of(const Work& work) {
    const std::uint64_t before = bytes_moved(world_);
    work();
    leave_out(bytes_moved(world_) - before);
  }
  [[nodiscard]] Traffic read() const;

 private:
  const transport::World& world_;
  std::chrono::steady_clock::time_point began_;
  transport::Counters at_start_;
  Traffic before_;
  std::uint64_t own_bytes_ = 0;  // the trainer's
};

/// Adds up the training loss of one epoch. A step costs no communication; the ranks meet in
/// reduce(), at log points and at the end of the epoch.
class LossMeter {
 public:
  /// Collective: it has a communicator of its own. The World's may be busy with an average that
  /// overlaps with steps, for which a log line need not wait.
  LossMeter(transport::World& world, TrafficMeter& traffic);

  /// Measures what a reduce() moves, while nothing else is under way: the meter of traffic, which
  /// is lent, leaves it out. Collective; before the first epoch.
  void join();

  /// A new epoch begins.
  void start() noexcept;

  /// Adds the sums of this rank for step `step`, counted from 1 over the whole run.
  void add(std::int64_t step, const LossSums& sums) noexcept;

  /// The sums over all ranks since the last reduce(). Collective. Throws NumericError on every
  /// rank when the loss of some rank was NaN or Inf, naming the first such step.
  LossSums reduce();

  /// The part of an unfinished epoch that a checkpoint keeps.
  struct State {
    LossSums own = {};
    LossSums window = {};
    LossSums total = {};
  };
  [[nodiscard]] State state() const noexcept { return {own_, window_, total_}; }
  void restore(const State& state) noexcept;

  /// This rank's own, of the epoch so far.
  [[nodiscard]] const LossSums& own() const noexcept { return own_; }
  /// All ranks', of the epoch up to the last reduce().
  [[nodiscard]] const LossSums& total() const noexcept { return total_; }

 private:
  [[noreturn]] void report_not_finite();

  transport::World& world_;
  TrafficMeter& traffic_;
  transport::Communicator all_;
  LossSums own_;
  LossSums window_;  // own, since the last reduce()
  LossSums total_;
  std::int64_t first_bad_step_ = 0;  // 0: none
  std::uint64_t bytes_ = 0;
};

}  // namespace rondo::train
