#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include <rondo/train/trainer.hpp>

#include "trainer/evaluation.hpp"
#include "trainer/meters.hpp"
#include "trainer/run_log.hpp"
#include "trainer/run_state.hpp"
#include "trainer/trained_state.hpp"

namespace rondo::train {

/// The reports of a run: the notes before it, events and progress while it trains, its
/// summary; and the meters from which these figures come. Where figures are sums over the ranks,
/// all ranks make the call, though rank 0 alone writes it down.
class RunRecord {
 public:
  /// Both are lent. Collective, as LossMeter is.
  RunRecord(TrainedState& state, RunLog& log);

  /// Measures what the record's own messages move. Collective; before the first epoch.
  void join() { losses_.join(); }
  [[nodiscard]] RunLog& log() noexcept { return log_; }
  [[nodiscard]] TrafficMeter& traffic() noexcept { return traffic_; }

  /// Tells the log what will run.
  void announce() const;
  /// Tells the log where the run goes on, and what is not as it was.
  void note_resumed() const;

  /// An epoch begins, or goes on from the checkpoint's figures.
  void begin_epoch();
  /// Adds the losses of a step, counted from 1.
  void add(std::int64_t step, const LossSums& sums) noexcept { losses_.add(step, sums); }
  /// Tells what the scheme has traced since the last call, but for its pushes.
  void report_traces();
  void report_progress() const;
  /// Tells the losses since the last such event; returns their mean. Collective.
  double report_step();
  /// Tells the pushes of all ranks since the last call. Collective.
  void report_pushes();
  /// Sums up the work of the epoch's steps. Collective.
  Work sum_up_epoch();
  /// Ends the epoch, and tells its result where it was evaluated. Collective.
  void end_epoch(const Work& work, const std::optional<TestFigures>& tested);
  /// Applies what the scheme still holds back, as work of the run. Collective.
  void flush();

  /// The summary of the run so far; what the log knows is left to it.
  [[nodiscard]] RunSummary summary(const std::string& reason, bool by_error);

  /// How far the run is, with the figures of now, and from where it goes on.
  [[nodiscard]] RunState run_state();
  void restore(const RunState& before);

 private:
  [[nodiscard]] StartEvent start_event() const;
  void announce_updates() const;
  void announce_learning_rate() const;
  Work work_since(const sync::SchemeCounters& before);
  void report_broken_images();
  [[nodiscard]] SynchronousWork synchronous_until(std::int64_t end);
  [[nodiscard]] std::uint64_t synchronously_sent(std::int64_t count, std::int64_t step);

  TrainedState& state_;
  RunLog& log_;
  TrafficMeter traffic_;
  LossMeter losses_;
  std::vector<std::string> injections_;
  sync::SchemeCounters epoch_before_;           // what the scheme had counted before the epoch
  std::int64_t first_ = 0;                      // the first step since the run was begun or resumed
  std::map<std::int64_t, std::uint64_t> sent_;  // by all in a synchronous step of so many samples
};

}  // namespace rondo::train
