#pragma once

#include "collective/operation.hpp"

namespace rondo::transport {

/// Any operation whose payload fits into a slot: everyone has written its own before the step
/// begins, and reads all, in rank order. One synchronisation, no second one.
///
/// Loads (P-1) * bytes per rank for allreduce, allgather and reduce (the root), bytes for
/// broadcast, (P-1)/P * bytes for reduce_scatter and alltoall.
class SmallOperation final : public Operation {
 public:
  Progress step(Group& group, const Posted& posted) override;
  [[nodiscard]] bool waits_for(const Group& group, std::size_t member) const override;
};

/// Writes this rank's payload, as publishing a small operation does.
void write_small_payload(Group& group, const Posted& posted) noexcept;

}  // namespace rondo::transport
