#pragma once

#include <cstdint>
#include <map>

#include <rondo/train/experiment.hpp>
#include <rondo/train/model.hpp>

#include "trainer/batch_iterator.hpp"
#include "trainer/grid_membership.hpp"
#include "trainer/run_state.hpp"

namespace rondo::train {

/// Counts what synchronous updates would have moved in the steps of a run.
class SynchronousMeter {
 public:
  /// What is trained, and how. All members are lent.
  struct Parts {
    const Experiment& experiment;
    const Model& model;
    const GridMembership& grid;
    const BatchIterator& batches;
  };

  explicit SynchronousMeter(const Parts& parts) noexcept : parts_(parts) {}

  /// The run goes on with step `step`, counted from 0; the steps before it would have moved
  /// `before`.
  void resume(std::int64_t step, const SynchronousWork& before) noexcept;

  /// The work of all steps before step `end`.
  [[nodiscard]] SynchronousWork until(std::int64_t end);

 private:
  [[nodiscard]] std::uint64_t sent_in(std::int64_t count, std::int64_t step);

  Parts parts_;
  std::int64_t first_ = 0;                      // the first step since the run was begun or resumed
  SynchronousWork before_ = {};                 // of the steps before it
  std::map<std::int64_t, std::uint64_t> sent_;  // in a step of so many samples
};

}  // namespace rondo::train
