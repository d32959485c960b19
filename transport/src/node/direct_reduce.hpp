#pragma once

#include <cstddef>

#include "collective/operation.hpp"
#include "node/slices.hpp"
#include "reduce/reduce.hpp"

namespace rondo::transport {

/// Allreduce and reduce of buffers that all lie in arenas, in one pass over shared memory.
///
/// When all ranks have posted, rank r reduces slice r (1/P of the elements, cut on cache lines) of
/// all inputs in rank order and stores the result into all outputs (reduce: into the root's).
/// Then it is done with its part; the operation is complete when all ranks are. Every element is
/// computed once, so all ranks hold the same bits.
///
/// Loads (P-1)/P * bytes; stores as many for allreduce, together what a ring sends, and bytes/P
/// for reduce (the root: 0); two synchronisations.
class DirectReduce final : public Operation {
 public:
  DirectReduce(Group& group, const Posted& posted);
  Progress step(Group& group, const Posted& posted) override;
  [[nodiscard]] bool waits_for(const Group& group, std::size_t member) const override;

 private:
  Reduction reduce_;
  std::size_t element_bytes_;
  std::size_t destinations_ = 0;
  Range todo_;  // elements
};

}  // namespace rondo::transport
