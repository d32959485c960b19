#pragma once

#include <cstddef>

#include "fabric/ring.hpp"

namespace rondo::transport {

/// Allgather over a ring: each rank's columns go around once.
///
/// P-1 steps; sends all shares but the right neighbour's, (P-1)/P n bytes per rank if all are
/// equal. Dense columns are received where they belong; others are unpacked from scratch.
class RingAllgather final : public RingOperation {
 public:
  RingAllgather(Group& group, const Posted& posted);

 private:
  [[nodiscard]] ConstBlock given(const Group& group, const Posted& posted,
                                 std::size_t chunk) const override;
  [[nodiscard]] Block result(const Group& group, const Posted& posted,
                             std::size_t chunk) const override;
};

}  // namespace rondo::transport
