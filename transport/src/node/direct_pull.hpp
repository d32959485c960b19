#pragma once

#include <cstddef>

#include "collective/operation.hpp"

namespace rondo::transport {

/// Broadcast, allgather and alltoall from inputs that lie in arenas: when all ranks have posted,
/// each copies what it needs straight out of its peers' inputs, and is done; the operation is
/// complete when all ranks are, for only then may an input change again.
///
/// Loads the bytes of the result that are not its own; stores nothing into peers.
class DirectPull final : public Operation {
 public:
  Progress step(Group& group, const Posted& posted) override;
  [[nodiscard]] bool waits_for(const Group& group, std::size_t member) const override;

 private:
  struct Copy {
    Block into;
    ConstBlock from;
  };
  [[nodiscard]] static Copy copy_from(const Group& group, const Posted& posted, std::size_t member);

  std::size_t source_ = 0;    // members, beginning with this rank itself, to spread the load
  std::size_t position_ = 0;  // bytes of that member's share
};

}  // namespace rondo::transport
