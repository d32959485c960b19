// The calls, and their order. Turns are in cyclic_turn.cpp, parking and flushing in
// cyclic_rest.cpp, states in cyclic_state.cpp.

#include "schemes/cyclic_scheme.hpp"

#include <algorithm>
#include <stdexcept>
#include <string>
#include <utility>

#include "base/check_replica.hpp"
#include "base/common_outer.hpp"

namespace rondo::sync {
namespace {

void check(const CyclicOptions& options) {
  if (options.minibatch_cap < 0 || !(options.clip_norm >= 0.0) || options.epoch_samples < 0 ||
      options.total_samples < 0) {
    throw std::invalid_argument(
        "cyclic: minibatch_cap, clip_norm, epoch_samples and total_samples must not be negative");
  }
  if (options.delay == Delay::fixed && options.when_empty == WhenEmpty::skip) {
    throw std::invalid_argument(
        "cyclic: with fixed delay every turn has a mini-batch, and none can be skipped");
  }
}

/// A communicator for the token alone: its order is not that of anything else.
transport::Communicator workers_of(const Replica& replica) {
  check_replica(replica);
  if (replica.slices.over == nullptr) expect_no_inner("cyclic", replica);
  transport::Communicator& workers = common_outer("cyclic", replica);
  return workers.split(0, workers.rank());
}

const CyclicOptions& checked(const CyclicOptions& options) {
  check(options);
  return options;
}

}  // namespace

CyclicScheme::CyclicScheme(Replica replica, std::shared_ptr<Optimizer> optimizer,
                           const CyclicOptions& options)
    : replica_(std::move(replica)),
      optimizer_(checked_optimizer("cyclic", replica_, std::move(optimizer))),
      options_(checked(options)),
      workers_(workers_of(replica_)),
      store_(*replica_.world, workers_, replica_.parameters.size(), optimizer_->state().size()),
      first_rank_(replica_),
      script_(options_.script, workers_.rank(), workers_.size()),
      iteration_("cyclic", replica_.layers),
      statistics_mean_(replica_),
      sums_(replica_, 1) {
  if (!alone()) ring_.emplace(*replica_.world, workers_, store_);
  rest_.holder = workers_.size() - 1;  // as if it had had its turn: the next is worker 0
  pending_.sum.resize(replica_.parameters.size());
}

void CyclicScheme::begin(const Step& step) {
  iteration_.expect_between("begin()");
  if (step.local_samples == 0) {
    throw std::invalid_argument("cyclic: step " + std::to_string(step.index) + " of worker " +
                                std::to_string(workers_.rank()) + " has no samples");
  }
  iteration_.begin(step);
  if (!open_) open();
  if (rest_.resting) resume();
  follow_skips();
}

void CyclicScheme::make_ready(std::size_t /*layer*/) {}  // finish() left all parameters ready

void CyclicScheme::gradients_final(std::size_t layer) { iteration_.layer_final(layer); }

void CyclicScheme::finish() {
  iteration_.expect_complete();
  iteration_.end();
  accumulate();
  if (comes()) {
    meet();
  } else if (options_.local_step) {
    step_alone();
  }
}

void CyclicScheme::copy_for_evaluation(std::span<float> parameters, std::span<float> statistics) {
  iteration_.expect_between("copy_for_evaluation()");
  expect_rest("copy_for_evaluation()");
  expect_copy_of(replica_, "cyclic", parameters, statistics);
  read_store(parameters);
  statistics_mean_.compute(replica_.statistics, statistics);
  if (!alone()) ++counters_.evaluation_reductions;
}

std::optional<Pace> CyclicScheme::pace() const noexcept {
  if (rest_.resting) return Pace{rest_.samples, rest_.parked};
  return Pace{pulled_.samples, false};
}

std::unique_ptr<UpdateScheme> make_cyclic(Replica replica, std::shared_ptr<Optimizer> optimizer,
                                          const CyclicOptions& options) {
  return std::make_unique<CyclicScheme>(std::move(replica), std::move(optimizer), options);
}

}  // namespace rondo::sync
