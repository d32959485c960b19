#pragma once

#include <cstddef>
#include <cstdint>
#include <memory_resource>
#include <span>
#include <string>
#include <vector>

#include <rondo/train/partition.hpp>

#include "checkpoint/resume.hpp"
#include "trainer/meters.hpp"
#include "trainer/trained_state.hpp"
#include "weights/model_weights.hpp"

namespace rondo::train {

/// The test set as the ranks evaluated it together.
struct TestFigures {
  LossSums sums;
  double seconds = 0.0;          ///< mean over the ranks
  std::uint64_t reductions = 0;  ///< that the scheme has made for it
  std::string parameter_hash = {};
};

/// Evaluates on a copy of the model: what the update scheme would make of parameters and statistics
/// with all that is still pending. Training goes on with the originals. The copy is also what is
/// saved at the end of a run, and what a checkpoint keeps where it differs.
class Evaluation {
 public:
  /// `state` is lent, and so is its memory, which the copy comes from.
  explicit Evaluation(TrainedState& state);

  /// Copies the model as it is, and evaluates it on the test set, which the ranks divide. Its
  /// parameters are complete. Collective. Throws NumericError where replicas differ that should
  /// not.
  TestFigures test();

  /// Leaves the model that was evaluated last as model.safetensors in rank 0's run folder, if it
  /// has one. Collective.
  void save_model();
  /// Copies the model, unless one was evaluated. Collective.
  void copy_if_empty();

  /// Copies what was evaluated when the checkpoint that is resumed was taken.
  void restore();
  /// The part that a checkpoint keeps besides the parameters that are trained. Refers to the arrays
  /// here; empty where they are of another step.
  [[nodiscard]] EvaluatedPart part() const;

 private:
  void copy();
  [[nodiscard]] LossSums test_own_share();
  [[nodiscard]] std::span<const float> model_statistics() const;
  [[nodiscard]] ModelWeights gather_weights();

  TrainedState& state_;
  std::pmr::vector<float> parameters_;
  std::pmr::vector<float> statistics_;  // of the layout, then SharedStatistics
  std::int64_t step_ = -1;              // after so many the copy was taken
};

}  // namespace rondo::train
