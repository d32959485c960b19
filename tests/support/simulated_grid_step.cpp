// Phases follow each other on every rank's clock; the reductions of gradients have clocks of their
// own beside them. Each exchange becomes an operation of the transport, posted by every rank of its
// group when that rank has come so far.

#include "support/simulated_grid_step.hpp"

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <exception>
#include <mutex>
#include <numeric>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>

#include "collective/algorithms.hpp"

namespace rondo::test {
namespace {

using transport::Posted;
using transport::shm::Collective;
using Kind = SimulatedExchange::Kind;

std::size_t sum_of(const std::vector<std::size_t>& bytes) {
  return std::accumulate(bytes.begin(), bytes.end(), std::size_t{0});
}

// The messages that a member sends to each, and gets from each.
Posted messages_of(std::size_t member, const SimulatedExchange& exchange,
                   std::span<std::byte> memory) {
  const std::size_t all = sum_of(exchange.bytes);
  const std::size_t size = exchange.groups.size;
  Posted posted = posted_bytes(Collective::alltoallv, memory, all, all);
  posted.sent_at = posted.received_at = {0};
  for (std::size_t peer = 0; peer < size; ++peer) {
    posted.sent_at.push_back(posted.sent_at.back() + exchange.bytes[member * size + peer]);
    posted.received_at.push_back(posted.received_at.back() + exchange.bytes[peer * size + member]);
  }
  return posted;
}

}  // namespace

std::size_t SimulatedExchange::sent_bytes() const {
  const std::size_t all = sum_of(bytes);
  if (kind == Kind::messages) return all;
  return (kind == Kind::allreduce ? 2 : 1) * (groups.size - 1) * all;
}

SimulatedGrid::SimulatedGrid(std::size_t ranks, const SimulatedCosts& costs,
                             std::size_t segment_bytes, SharedPorts::User* shared_ports)
    : ranks_(ranks), costs_(costs), segment_bytes_(segment_bytes), shared_ports_(shared_ports) {}

std::vector<double> SimulatedGrid::run(const SimulatedExchange& exchange,
                                       std::span<const double> starts) {
  if (exchange.groups.size == 1 || sum_of(exchange.bytes) == 0) {
    return {starts.begin(), starts.end()};
  }
  switch (exchange.kind) {
    case Kind::allgather:
      return hierarchy_of(exchange.groups).allgather(exchange.bytes, starts);
    case Kind::reduce_scatter:
      return hierarchy_of(exchange.groups).reduce_scatter(exchange.bytes, starts);
    case Kind::allreduce:
      return hierarchy_of(exchange.groups).allreduce(exchange.bytes[0], starts);
    case Kind::messages:
      break;
  }
  return run_messages(exchange, starts);
}

std::vector<double> SimulatedGrid::run_messages(const SimulatedExchange& exchange,
                                                std::span<const double> starts) {
  const auto [size, stride] = exchange.groups;
  data_.resize(std::max(data_.size(), 2 * sum_of(exchange.bytes)));
  std::vector<Posted> posted;
  for (std::size_t r = 0; r < ranks_; ++r) {
    posted.push_back(messages_of(r / stride % size, exchange, data_));
  }
  return ranks_in(exchange.groups).run(transport::algorithms::exchange, posted, 0.0, starts);
}

SimulatedHierarchy& SimulatedGrid::hierarchy_of(const SimulatedGroups& groups) {
  auto& found = for_collectives_[{groups.size, groups.stride}];
  if (!found) {
    found =
        std::make_unique<SimulatedHierarchy>(ranks_, costs_, segment_bytes_, groups, shared_ports_);
  }
  return *found;
}

SimulatedRanks& SimulatedGrid::ranks_in(const SimulatedGroups& groups) {
  if (ranks_ % (groups.size * groups.stride) != 0) {
    throw std::invalid_argument(
        std::to_string(ranks_) + " ranks cannot be divided into groups of " +
        std::to_string(groups.size) + ", " + std::to_string(groups.stride) + " apart");
  }
  auto& found = for_messages_[{groups.size, groups.stride}];
  if (!found) {
    SimulatedRanks::Options options{.costs = costs_,
                                    .moves_data = false,
                                    .segment_bytes = segment_bytes_,
                                    .groups = groups.stride,
                                    .group_size = groups.size,
                                    .ports_stay_busy = true,
                                    .shared_ports = shared_ports_};
    options.costs.memory_per_byte *= 2.0;  // a message is read and written
    found = std::make_unique<SimulatedRanks>(ranks_, options);
  }
  return *found;
}

namespace {

// Reductions of gradients, one behind the other, in a thread of their own beside the exchanges.
class Reductions {
 public:
  Reductions(SimulatedGrid grid, SharedPorts::User& ports)
      : ports_(ports), grid_(std::move(grid)), reduced_(grid_.ranks(), 0.0) {}
  Reductions(const Reductions&) = delete;
  Reductions& operator=(const Reductions&) = delete;
  ~Reductions() {
    const std::lock_guard lock(mutex_);
    ended_ = true;
    changed_.notify_all();
  }

  // Adds a reduction of gradients that are final on rank r at second ready[r].
  void post(const SimulatedExchange& reduction, std::vector<double> ready) {
    const std::lock_guard lock(mutex_);
    if (queue_.empty()) ports_.begin(*std::ranges::min_element(ready));
    queue_.push_back({&reduction, std::move(ready)});
    changed_.notify_all();
  }

  // Waits for all of them. Returns when each rank's have ended.
  std::vector<double> wait() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return queue_.empty() || failure_ != nullptr; });
    if (failure_ != nullptr) std::rethrow_exception(failure_);
    return reduced_;
  }

 private:
  struct Posted {
    const SimulatedExchange* reduction = nullptr;
    std::vector<double> ready = {};
  };

  void run() {
    std::unique_lock lock(mutex_);
    while (true) {
      changed_.wait(lock, [&] { return !queue_.empty() || ended_; });
      if (ended_) return;
      const Posted& next = queue_.front();  // it stays there while it is run
      lock.unlock();
      reduce(next);
      lock.lock();
      queue_.pop_front();
      if (queue_.empty()) ports_.rest();
      changed_.notify_all();
    }
  }

  void reduce(const Posted& posted) {
    std::vector<double> starts = posted.ready;
    for (std::size_t r = 0; r < starts.size(); ++r) starts[r] = std::max(starts[r], reduced_[r]);
    try {
      reduced_ = grid_.run(*posted.reduction, starts);
    } catch (...) {
      const std::lock_guard lock(mutex_);
      failure_ = std::current_exception();
    }
  }

  SharedPorts::User& ports_;
  SimulatedGrid grid_;
  std::vector<double> reduced_;  // until when each rank's reductions go on
  std::mutex mutex_;             // of all below
  std::condition_variable changed_;
  std::deque<Posted> queue_;
  std::exception_ptr failure_;
  bool ended_ = false;
  std::jthread thread_{[this] { run(); }};
};

// All ranks of a grid, on their way through a step.
class Steps {
 public:
  Steps(std::size_t ranks, const SimulatedCosts& costs, std::size_t segment_bytes,
        std::span<const double> slowness)
      : ports_((ranks + costs.ranks_per_node - 1) / costs.ranks_per_node),
        exchanges_(ranks, costs, segment_bytes, &ports_.second()),
        slowness_(slowness),
        clocks_(ranks, 0.0),
        reductions_({ranks, costs, segment_bytes, &ports_.first()}, ports_.first()) {
    ports_.second().begin(0.0);
  }
  ~Steps() { ports_.second().rest(); }

  // What is computed beside an exchange is known first, so that its reduction is posted in time.
  void pass(const SimulatedPhase& phase) {
    std::vector<double> exchanged = clocks_;
    std::vector<double> computed = clocks_;
    const auto compute = [&] {
      for (std::size_t r = 0; r < computed.size(); ++r) {
        computed[r] += phase.seconds * slowness_[r];
      }
      if (phase.reduction) reductions_.post(*phase.reduction, computed);
    };
    if (phase.beside) compute();
    if (phase.exchange) exchanged = exchanges_.run(*phase.exchange, clocks_);
    if (!phase.beside) {
      computed = exchanged;
      compute();
    }
    for (std::size_t r = 0; r < clocks_.size(); ++r) {
      clocks_[r] = std::max(exchanged[r], computed[r]);
    }
  }

  // Returns when the last rank has updated its parameters.
  double update(double seconds) {
    ports_.second().rest();
    const std::vector<double> reduced = reductions_.wait();
    for (std::size_t r = 0; r < clocks_.size(); ++r) {
      clocks_[r] = std::max(clocks_[r], reduced[r]) + seconds * slowness_[r];
    }
    ports_.second().begin(*std::ranges::min_element(clocks_));
    return *std::ranges::max_element(clocks_);
  }

 private:
  SharedPorts ports_;
  SimulatedGrid exchanges_;
  std::span<const double> slowness_;
  std::vector<double> clocks_;
  Reductions reductions_;
};

}  // namespace

std::vector<double> simulate_grid_steps(std::size_t ranks, const SimulatedCosts& costs,
                                        std::size_t segment_bytes,
                                        std::span<const SimulatedPhase> phases,
                                        double update_seconds, std::span<const double> slowness,
                                        std::size_t steps) {
  if (slowness.size() != ranks) throw std::invalid_argument("every rank needs a slowness");
  Steps run(ranks, costs, segment_bytes, slowness);
  std::vector<double> ends;
  while (ends.size() < steps) {
    for (const SimulatedPhase& phase : phases) run.pass(phase);
    ends.push_back(run.update(update_seconds));
  }
  return ends;
}

}  // namespace rondo::test
