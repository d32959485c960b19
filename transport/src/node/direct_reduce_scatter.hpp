#pragma once

#include <cstddef>

#include "collective/operation.hpp"
#include "reduce/reduce.hpp"

namespace rondo::transport {

/// Reduce-scatter of inputs that all lie in arenas: when all ranks have posted, each reduces its
/// own columns of all inputs, in rank order, into its output, wherever that lies; the operation is
/// complete when all ranks have, for only then may an input change again.
///
/// Loads P-1 times its own share; stores nothing into peers.
class DirectReduceScatter final : public Operation {
 public:
  explicit DirectReduceScatter(const Posted& posted);
  Progress step(Group& group, const Posted& posted) override;
  [[nodiscard]] bool waits_for(const Group& group, std::size_t member) const override;

 private:
  Reduction reduce_;
  std::size_t position_ = 0;  // bytes of this rank's share
};

}  // namespace rondo::transport
