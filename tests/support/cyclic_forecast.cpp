// Plays the clocks of a cyclic scheme's workers: no thread, no message, no gradient.

#include "support/cyclic_forecast.hpp"

#include <algorithm>
#include <stdexcept>
#include <string>
#include <utility>

namespace rondo::sync::test {
namespace {

// Is a multiple of `every` in (before, after]?
bool crosses(std::int64_t before, std::int64_t after, std::int64_t every) noexcept {
  return every > 0 && before / every != after / every;
}

/// One worker's clock.
struct WorkerClock {
  double now = 0.0;  // its last mini-batch or turn has ended
  std::int64_t begun = 0;
  int minibatches = 0;   // since its last push
  bool computes = true;  // a mini-batch is due before it looks for the token
};

class Simulation {
 public:
  explicit Simulation(const CyclicWorkload& workload)
      : workload_(workload),
        cap_(workload.delay == Delay::fixed ? 1 : workload.minibatch_cap),
        clocks_(static_cast<std::size_t>(workload.workers)) {
    forecast_.minibatches.resize(clocks_.size(), 0);
  }

  CyclicForecast run(double end) {
    double token = 0.0;  // when it comes
    for (std::size_t worker = 0;; worker = (worker + 1) % clocks_.size()) {
      compute_until(token, worker);
      const double begin = std::max(clocks_[worker].now, token);
      if (begin >= end) return std::move(forecast_);
      const std::int64_t before = samples_;
      push(worker, begin);
      token = clocks_[worker].now = begin + workload_.pass_duration;
      const bool is_last = crosses_once(before, workload_.total_samples);
      if (!is_last && !crosses(before, samples_, workload_.epoch_samples)) continue;
      token = park(worker, token);
      if (is_last) return std::move(forecast_);
    }
  }

 private:
  [[nodiscard]] bool crosses_once(std::int64_t before, std::int64_t total) const noexcept {
    return total > 0 && before < total && samples_ >= total;
  }

  // A mini-batch is due after a push and after a park; then the worker looks for the token.
  void compute_until(double token, std::size_t worker) {
    WorkerClock& clock = clocks_[worker];
    while (clock.computes || (clock.now < token && (cap_ == 0 || clock.minibatches < cap_))) {
      const double duration = workload_.duration(static_cast<int>(worker), clock.begun++);
      if (!(duration > 0.0)) {
        throw std::invalid_argument("forecast: a mini-batch of worker " + std::to_string(worker) +
                                    " takes " + std::to_string(duration));
      }
      clock.now += duration;
      clock.minibatches += 1;
      clock.computes = false;
    }
  }

  void push(std::size_t worker, double when) {
    WorkerClock& clock = clocks_[worker];
    add({.worker = static_cast<int>(worker), .minibatches = clock.minibatches}, when);
    forecast_.minibatches[worker] += clock.minibatches;
    samples_ += clock.minibatches * workload_.minibatch_samples;
    clock.minibatches = 0;
    clock.computes = true;
  }

  // The holder stops at once, and each other worker after the mini-batch that it is computing then.
  // Returns when all have stopped, and go on.
  double park(std::size_t holder, double announced) {
    double all_stopped = announced;
    for (std::size_t i = 0; i < clocks_.size(); ++i) {
      const std::size_t worker = (holder + i) % clocks_.size();
      WorkerClock& clock = clocks_[worker];
      if (worker != holder) compute_until(announced, worker);
      all_stopped = std::max(all_stopped, clock.now);
      add({Turn::Kind::park, static_cast<int>(worker), clock.minibatches}, all_stopped);
    }
    for (WorkerClock& clock : clocks_) {
      clock.now = all_stopped;
      clock.computes = true;
    }
    return all_stopped;
  }

  void add(const Turn& turn, double when) {
    forecast_.turns.push_back(turn);
    forecast_.times.push_back(when);
  }

  const CyclicWorkload& workload_;
  int cap_;
  std::vector<WorkerClock> clocks_;
  std::int64_t samples_ = 0;  // pushed
  CyclicForecast forecast_;
};

}  // namespace

CyclicForecast forecast(const CyclicWorkload& workload, double end) {
  if (workload.workers < 1 || !workload.duration || workload.pass_duration < 0.0 ||
      workload.minibatch_cap < 0 || workload.minibatch_samples < 1 || workload.epoch_samples < 0 ||
      workload.total_samples < 0) {
    throw std::invalid_argument(
        "forecast: needs a worker, durations, mini-batches of at least one sample, and no cap, "
        "pass_duration, epoch_samples or total_samples below 0");
  }
  return Simulation(workload).run(end);
}

}  // namespace rondo::sync::test
