#pragma once

#include <cstddef>

#include "collective/operation.hpp"
#include "collective/slices.hpp"
#include "reduce/reduce.hpp"

namespace rondo::transport {

/// Allreduce of buffers that all lie in arenas, in one pass over shared memory.
///
/// When all ranks have posted, rank r sums slice r (1/P of the elements, cut on cache lines) of
/// all buffers in rank order and stores the sum into all of them. Then it is done with its part;
/// the operation is complete when all ranks are. Every element is computed once, so all ranks
/// hold the same bits.
///
/// Loads and stores (P-1)/P * bytes each: together what a ring sends, in two synchronisations.
class DirectAllreduce final : public Operation {
 public:
  DirectAllreduce(Group& group, const Posted& posted);
  Progress step(Group& group, const Posted& posted) override;
  [[nodiscard]] bool waits_for(const Group& group, std::size_t member) const override;

 private:
  Reduction reduce_;
  std::size_t element_bytes_;
  Range todo_;  // elements
};

}  // namespace rondo::transport
