#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include <rondo/sync/cyclic.hpp>

namespace rondo::sync::test {

/// Workers of a cyclic scheme as their clocks see them.
struct CyclicWorkload {
  int workers = 1;
  /// How long mini-batch 0, 1, ... of a worker takes; positive, in any unit.
  std::function<double(int worker, std::int64_t minibatch)> duration = {};
  double pass_duration = 0.0;  ///< of a turn: push, pull, and the token's way to the next worker
  Delay delay = Delay::dynamic;
  int minibatch_cap = 0;
  std::int64_t minibatch_samples = 1;
  /// The token is parked when the samples pushed reach a multiple of this, as in CyclicOptions;
  /// all go on when the last worker has stopped. 0: never.
  std::int64_t epoch_samples = 0;
  /// And when they reach this, where the forecast ends; 0: never.
  std::int64_t total_samples = 0;
};

/// A forecast of the events until some time.
struct CyclicForecast {
  std::vector<Turn> turns = {};                ///< pushes and parks, in order
  std::vector<double> times = {};              ///< when each began
  std::vector<std::int64_t> minibatches = {};  ///< that each worker has pushed
};

/// Plays the clocks: which turns a cyclic scheme has in [0, end). Nothing is computed, nothing
/// waits: a scripted clock for tests, and a prediction. The token is seen by a mini-batch that ends
/// just when it comes. The turns can be the `script` of CyclicOptions with the same delay, cap,
/// epoch_samples and total_samples.
///
/// Throws std::invalid_argument when there is no worker or a duration is not positive.
[[nodiscard]] CyclicForecast forecast(const CyclicWorkload& workload, double end);

}  // namespace rondo::sync::test
