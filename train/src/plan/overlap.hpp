#pragma once

#include <cstddef>
#include <functional>
#include <vector>

#include <rondo/train/compute_costs.hpp>
#include <rondo/train/model.hpp>

namespace rondo::train {

// When the gradients of a layer's parameters are final in a step of one rank.
struct FinalGradients {
  double seconds = 0.0;   // from the begin of forward
  std::size_t words = 0;  // parameters
};

// A step without communication: by parameter group, and the end of backward.
struct Backward {
  std::vector<FinalGradients> groups = {};
  double end = 0.0;
};

[[nodiscard]] Backward backward_of(const Model& model, std::int64_t samples,
                                   const ComputeCosts& costs);

// Seconds of an allreduce of so many words.
using Allreduce = std::function<double(double words)>;

// When the reductions of all groups from `first` on have ended; they begin with the last group. 0
// if there are none.
[[nodiscard]] double reductions_end(const Backward& backward, std::size_t first,
                                    std::size_t bucket_words, const Allreduce& allreduce);

}  // namespace rondo::train
