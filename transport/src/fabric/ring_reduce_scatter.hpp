#pragma once

#include <cstddef>

#include "fabric/ring.hpp"

namespace rondo::transport {

/// Reduce_scatter over a ring: each rank's columns are summed on their way to it.
///
/// P-1 steps; sends the others' shares once, (P-1)/P n bytes per rank if all are equal. Rows that
/// do not lie together are packed on their way out, and joined where they lie.
class RingReduceScatter final : public RingOperation {
 public:
  RingReduceScatter(Group& group, const Posted& posted);

 private:
  [[nodiscard]] ConstBlock given(const Group& group, const Posted& posted,
                                 std::size_t chunk) const override;
  [[nodiscard]] Block result(const Group& group, const Posted& posted,
                             std::size_t chunk) const override;
};

}  // namespace rondo::transport
