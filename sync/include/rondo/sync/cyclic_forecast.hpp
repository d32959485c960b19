#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include <rondo/sync/cyclic.hpp>
#include <rondo/sync/export.hpp>

namespace rondo::sync {

/// Workers of a cyclic scheme as their clocks see them.
struct CyclicWorkload {
  int workers = 1;
  /// How long mini-batch 0, 1, ... of a worker takes; positive, in any unit.
  std::function<double(int worker, std::int64_t minibatch)> duration = {};
  double pass_duration = 0.0;  ///< of a turn: push, pull, and the token's way to the next worker
  Delay delay = Delay::dynamic;
  int minibatch_cap = 0;
};

/// What happens until some time.
struct CyclicForecast {
  std::vector<Turn> turns = {};                ///< pushes, in order
  std::vector<double> times = {};              ///< when each began
  std::vector<std::int64_t> minibatches = {};  ///< that each worker has pushed
};

/// Plays the clocks: which turns a cyclic scheme has in [0, end). Nothing is computed, nothing
/// waits: a scripted clock for tests, and a prediction. The token is seen by a mini-batch that ends
/// just when it comes. The turns can be the `script` of CyclicOptions.
///
/// Throws std::invalid_argument when there is no worker or a duration is not positive.
[[nodiscard]] RONDO_SYNC_API CyclicForecast forecast(const CyclicWorkload& workload, double end);

}  // namespace rondo::sync
