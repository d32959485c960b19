#pragma once

#include <cstddef>
#include <memory_resource>
#include <span>
#include <vector>

#include <rondo/sync/replica.hpp>

namespace rondo::sync {

/// Clipping by the global norm (Pascanu, Mikolov, Bengio 2013): what a gradient that is about to be
/// multiplied by `scale` must be multiplied by as well, so that it is no longer than `max_norm`:
///
///     min(1, max_norm / (scale * sqrt(squared_norm)))
///
/// `squared_norm` is that of the unscaled gradient over all layers. A max_norm of 0 means no
/// clipping: exactly 1. Ranks that pass the same numbers get the same bits. A norm that is not a
/// number gives 1, so that the parameters show it.
[[nodiscard]] double clip_factor(double squared_norm, double scale, double max_norm) noexcept;

/// Scalar products over the whole model, of which this rank may hold a part: see Slices.
///
/// Each rank sums what it counts, in double and in a fixed order; the sums of the replica's ranks
/// are added up in their order, by each rank alike: all ranks of all replicas that hold the same
/// numbers get the same bits. A rank that holds the whole model sends nothing.
class ModelSums {
 public:
  /// For up to `most` sums at once. `replica` is lent.
  ModelSums(const Replica& replica, std::size_t most);

  /// Are there other ranks to ask?
  [[nodiscard]] bool is_shared() const noexcept { return slices_.over != nullptr; }

  /// What this rank counts of a.b, where both hold the elements from `offset` on of the flat
  /// arrays.
  [[nodiscard]] double own_dot(std::span<const float> a, std::span<const float> b,
                               std::size_t offset) const;

  /// Replaces what this rank has counted by what the replica has. Collective over its ranks.
  void add_up(std::span<double> sums);

  /// Of all elements of the model, of which `values` are those of this rank's flat arrays.
  /// Collective over the replica's ranks.
  [[nodiscard]] double squared_norm(std::span<const float> values);

  /// The clip_factor() of a gradient. Collective as squared_norm(), unless `max_norm` is 0.
  [[nodiscard]] double clip_factor(std::span<const float> gradients, double scale, double max_norm);

 private:
  const Slices& slices_;
  std::size_t most_;
  std::pmr::vector<double> own_;  // in the arena, as all_
  std::pmr::vector<double> all_;  // by rank
};

}  // namespace rondo::sync
