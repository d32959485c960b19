#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include <rondo/sync/cyclic.hpp>
#include <rondo/transport/communicator.hpp>

#include "base/first_rank.hpp"
#include "base/iteration.hpp"
#include "base/model_sums.hpp"
#include "base/statistics_mean.hpp"
#include "schemes/cyclic_store.hpp"
#include "schemes/script.hpp"
#include "schemes/token_ring.hpp"

namespace rondo::sync {

/// See make_cyclic().
///
/// The token is at rest (before the first step, parked, after a flush) with one worker that all
/// know, or on its way. At rest the ring is empty: everybody has seen the park.
class CyclicScheme final : public UpdateScheme {
 public:
  CyclicScheme(Replica replica, std::shared_ptr<Optimizer> optimizer, const CyclicOptions& options);

  void begin(const Step& step) override;
  void make_ready(std::size_t layer) override;
  void gradients_final(std::size_t layer) override;
  void finish() override;
  void copy_for_evaluation(std::span<float> parameters, std::span<float> statistics) override;
  void flush() override;
  [[nodiscard]] std::vector<std::span<const float>> replicated() const override { return {}; }
  [[nodiscard]] std::vector<std::byte> save() const override;
  void restore(std::span<const std::byte> state) override;
  [[nodiscard]] SchemeCounters counters() const noexcept override { return counters_; }
  [[nodiscard]] bool wants_inner_sums() const noexcept override { return true; }
  [[nodiscard]] std::optional<Pace> pace() const noexcept override;

 private:
  using Clock = std::chrono::steady_clock;

  /// What this worker has computed and not pushed.
  struct Pending {
    std::vector<float> sum = {};  ///< of gradients, each divided by its step's global_samples
    double batches = 0.0;         ///< these are of, global ones: local_samples / global_samples
    int minibatches = 0;
    std::int64_t samples = 0;
    double learning_rate = 0.0;  ///< of the last mini-batch's step
  };
  /// The parameters that this worker computes with.
  struct Pulled {
    std::int64_t version = 0;
    std::int64_t samples = 0;
    Clock::time_point when = {};
  };
  /// Where the token rests, and what the store was then.
  struct Rest {
    bool resting = true;
    bool parked = false;  ///< after an epoch
    int holder = 0;
    std::int64_t version = 0;
    std::int64_t samples = 0;
  };

  [[nodiscard]] bool alone() const noexcept { return workers_.size() == 1; }
  [[nodiscard]] bool holds() const noexcept { return rest_.holder == workers_.rank(); }
  [[nodiscard]] Turn turn(Turn::Kind kind) const noexcept;
  void tell(Turn::Kind kind, std::int64_t staleness);

  // Turns (cyclic_turn.cpp).
  void accumulate();
  void step_alone();
  [[nodiscard]] bool comes();
  [[nodiscard]] bool has_arrived();
  void meet();
  void push();
  void pull();
  [[nodiscard]] double scaling() const;
  [[nodiscard]] double clipping();
  void skip();
  void follow_skips();

  // Rest (cyclic_rest.cpp).
  void open();
  void resume();
  [[nodiscard]] bool ends_epoch(std::int64_t before, std::int64_t after) const noexcept;
  void park();
  void rest();
  void push_the_rest();
  void read_store(std::span<float> parameters);
  void expect_rest(const char* call) const;
  void expect_own(int rank, int size) const;  // of a state

  Replica replica_;
  std::shared_ptr<Optimizer> optimizer_;
  CyclicOptions options_;
  transport::Communicator workers_;
  CyclicStore store_;
  std::optional<TokenRing> ring_;  // none for one worker
  FirstRank first_rank_;
  Script script_;
  Iteration iteration_;
  StatisticsMean statistics_mean_;
  ModelSums sums_;

  bool started_ = false;              // has the store been filled?
  bool open_ = false;                 // does the store hold what is trained?
  std::vector<float> restored_ = {};  // what it shall hold, of a restored holder
  std::int64_t updates_before_ = 0;   // that the optimizer had seen before the store was opened
  std::int64_t parks_ = 0;            // seen since the store was opened
  Rest rest_;
  Pending pending_;
  Pulled pulled_;
  SchemeCounters counters_;
};

}  // namespace rondo::sync
