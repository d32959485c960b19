#pragma once

#include <chrono>
#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <rondo/sync/optimizer.hpp>
#include <rondo/sync/update_scheme.hpp>
#include <rondo/train/executor.hpp>
#include <rondo/train/experiment.hpp>
#include <rondo/train/parameters.hpp>
#include <rondo/transport/request.hpp>
#include <rondo/transport/world.hpp>

#include "trainer/trained_state.hpp"

namespace rondo::train {

/// The delays injected into a run on so many nodes, in words; every output of the run says so.
/// `fabric` is what joins the nodes: its delays may come from the launcher's variables.
[[nodiscard]] std::vector<std::string> injections_of(const Experiment& experiment,
                                                     const transport::FabricOptions& fabric,
                                                     int nodes);

/// How many times as long rank `rank` shall take; 1 if it is not slowed down.
[[nodiscard]] double slowness_of(const Experiment& experiment, int rank);

/// Makes a rank compute more slowly than it does, for experiments: [inject] slow_ranks.
class SlowRank {
 public:
  /// A rank that takes `factor` >= 1 times as long; 1 changes nothing.
  SlowRank(transport::World& world, double factor) : world_(world), factor_(factor) {}

  /// Waits factor - 1 times as long as `compute` took without what it spent in the transport.
  /// Communication goes on meanwhile; the CPU is left to others.
  template <typename Compute>
  auto slowed(Compute compute) {
    const Clock::time_point began = Clock::now();
    const std::chrono::nanoseconds transport = in_transport();
    const auto result = compute();
    if (factor_ > 1.0) wait_for(Clock::now() - began - (in_transport() - transport));
    return result;
  }

 private:
  using Clock = std::chrono::steady_clock;

  [[nodiscard]] std::chrono::nanoseconds in_transport() const;
  void wait_for(std::chrono::nanoseconds computed);

  transport::World& world_;
  double factor_;
};

/// Hands the executor's progress through a step on to the update scheme and the transport. Layer
/// l of the scheme is block l of the model's parameters.
///
/// Where a step is computed in several micro-batches, the scheme sees one: layers are made ready in
/// the first micro-batch, and final in the last, with the gradients of all.
///
/// A replica of several ranks that steps by itself needs the sums of its ranks' gradients. They are
/// reduced in buckets while backward goes on, and the scheme is told of a layer when its sum is
/// there: between two layers, or at the end of the step.
class StepLink final : public StepObserver {
 public:
  /// `state` is lent; it has its scheme.
  explicit StepLink(TrainedState& state);

  /// The next pass is micro-batch `micro_batch` of `micro_batches`.
  void begin_micro_batch(std::int64_t micro_batch, std::int64_t micro_batches) noexcept {
    first_ = micro_batch == 0;
    if (first_) not_finite_.reset();
    last_ = micro_batch + 1 == micro_batches;
  }

  void make_ready(std::size_t block) override {
    if (first_) state_.scheme->make_ready(block);
  }
  void gradients_final(std::size_t block) override;
  void between_layers() override;
  [[nodiscard]] StepProfile* profile() override { return state_.options.profile; }

  /// The first parameter block of this step whose own gradient, before any sum, has an element that
  /// is NaN or infinite. Backward goes from the last layer to the first.
  [[nodiscard]] std::optional<std::size_t> not_finite() const noexcept { return not_finite_; }

  /// The last micro-batch has been computed: waits for sums that are still under way.
  void end_step();

 private:
  /// Adjacent parameter blocks, the last one first, that are summed over the same ranks.
  struct Bucket {
    std::size_t first = 0;                     ///< parameter block
    std::size_t last = 0;                      ///< behind it
    transport::Communicator* inner = nullptr;  ///< none: nothing is to be summed
    transport::Request request = {};
  };

  void add_up(const ParameterBlock& block);
  void collect(std::size_t block);
  void post_open();
  /// The scheme is told of the oldest bucket, which has been summed.
  void pass_on();

  [[nodiscard]] std::span<float> gradients_of(const Bucket& bucket) const;

  TrainedState& state_;
  std::vector<Bucket> buckets_;  // of this step, in the order in which they became final
  std::size_t passed_on_ = 0;    // of them, by now
  bool is_open_ = false;         // the last one: more may follow
  std::optional<sync::GradientSum> sum_ = {};
  std::optional<std::size_t> not_finite_ = {};
  bool first_ = true;
  bool last_ = true;
};

}  // namespace rondo::train
