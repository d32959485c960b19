#pragma once

#include <cstdint>
#include <functional>
#include <optional>

#include "trainer/meters.hpp"
#include "trainer/run_record.hpp"
#include "trainer/step_check.hpp"
#include "trainer/step_link.hpp"
#include "trainer/trained_state.hpp"

namespace rondo::train {

/// Trains: batches, forward, backward, reductions, updates.
///
/// Ranks take a step together. Under schemes whose ranks do not, each trains mini-batches of its
/// own after the warm-up, until the scheme parks it: then all together have trained an epoch's
/// samples.
class StepLoop {
 public:
  /// Both are lent.
  StepLoop(TrainedState& state, RunRecord& record);

  /// Makes what a step needs beside the scheme, which is there. Collective, as are its steps.
  void join();

  /// Trains to the end of the epoch, or of the run. `stops` is called between two steps; true ends
  /// the loop there.
  void run(const std::function<bool()>& stops);
  /// Waits for what the last step has left under way: flags, and parameters. Collective.
  void settle();

  /// Has a sweep ended because training diverges?
  [[nodiscard]] bool diverged() const noexcept { return diverged_; }
  /// The facts that all ranks notice alike in a step.
  [[nodiscard]] StepCheck& check() noexcept { return *check_; }

 private:
  /// Which step it is: of all ranks together, or of this rank at its own pace.
  struct Step {
    bool paced;
    BatchIterator& batches;
    std::int64_t number;  ///< of the batches, from 0
    std::int64_t index;   ///< as the scheme counts
  };

  [[nodiscard]] Step next_step(bool paced);
  void run_step(const Step& step);
  void begin(const Step& step);
  [[nodiscard]] Batch load(const Step& step, std::int64_t micro_batch);
  [[nodiscard]] LossSums forward_backward(const Step& step, std::int64_t micro_batch,
                                          const Batch& batch);
  void reduce(const LossSums& sums);
  void expect_finite(const Step& step, const LossSums& sums);
  void update(const Step& step);
  void count(const Step& step, const LossSums& sums);
  void report(bool paced);
  [[nodiscard]] bool is_over(bool paced) const;
  void meet();

  TrainedState& state_;
  RunRecord& record_;
  SlowRank slow_rank_;
  std::optional<StepLink> link_;  // made in join(), as the next
  std::optional<StepCheck> check_;
  bool diverged_ = false;
};

}  // namespace rondo::train
