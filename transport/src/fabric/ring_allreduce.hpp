#pragma once

#include <cstddef>

#include "fabric/ring.hpp"

namespace rondo::transport {

/// Allreduce over a ring: chunk r is summed on its way to rank r, and goes around again.
///
/// 2 (P-1) steps; sends 2 (P-1)/P n bytes per rank, the least possible. Every element is computed
/// once, so all ranks get the same bits. bf16 is rounded at every rank that a sum passes.
class RingAllreduce final : public RingOperation {
 public:
  RingAllreduce(Group& group, const Posted& posted);

 private:
  [[nodiscard]] ConstBlock given(const Group& group, const Posted& posted,
                                 std::size_t chunk) const override;
  [[nodiscard]] Block result(const Group& group, const Posted& posted,
                             std::size_t chunk) const override;
};

}  // namespace rondo::transport
