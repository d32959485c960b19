// Plays the clocks of a cyclic scheme's workers: no thread, no message, no gradient.

#include <rondo/sync/cyclic.hpp>

#include <algorithm>
#include <stdexcept>
#include <string>
#include <utility>

namespace rondo::sync {
namespace {

/// One worker's clock.
struct WorkerClock {
  double now = 0.0;  // its last mini-batch or turn has ended
  std::int64_t begun = 0;
  int minibatches = 0;  // since its last turn
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
      WorkerClock& clock = clocks_[worker];
      compute_until(token, clock, static_cast<int>(worker));
      const double begin = std::max(clock.now, token);
      if (begin >= end) return std::move(forecast_);
      forecast_.turns.push_back(
          {.worker = static_cast<int>(worker), .minibatches = clock.minibatches});
      forecast_.times.push_back(begin);
      forecast_.minibatches[worker] += clock.minibatches;
      token = clock.now = begin + workload_.pass_duration;
      clock.minibatches = 0;
    }
  }

 private:
  void compute_until(double token, WorkerClock& clock, int worker) {
    while (clock.minibatches == 0 ||
           (clock.now < token && (cap_ == 0 || clock.minibatches < cap_))) {
      const double duration = workload_.duration(worker, clock.begun++);
      if (!(duration > 0.0)) {
        throw std::invalid_argument("forecast: a mini-batch of worker " + std::to_string(worker) +
                                    " takes " + std::to_string(duration));
      }
      clock.now += duration;
      clock.minibatches += 1;
    }
  }

  const CyclicWorkload& workload_;
  int cap_;
  std::vector<WorkerClock> clocks_;
  CyclicForecast forecast_;
};

}  // namespace

CyclicForecast forecast(const CyclicWorkload& workload, double end) {
  if (workload.workers < 1 || !workload.duration || workload.pass_duration < 0.0 ||
      workload.minibatch_cap < 0) {
    throw std::invalid_argument(
        "forecast: needs a worker, durations, and neither cap nor pass_duration below 0");
  }
  return Simulation(workload).run(end);
}

}  // namespace rondo::sync
