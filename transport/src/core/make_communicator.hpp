#pragma once

#include <cstdint>
#include <memory>
#include <vector>

namespace rondo::transport {

class CommunicatorCore;
class WorldCore;

/// A member of a communicator to be made, and the control blocks that it offers.
struct NewMember {
  int world_rank = 0;
  std::uint16_t port = 0;      ///< that it has taken for the communicator's messages
  std::uint64_t block = 0;     ///< in its control segment
  std::uint64_t last = 0;      ///< the last sequence that the block ever held
  std::uint64_t up_block = 0;  ///< a second one, for groups that span nodes
  std::uint64_t up_last = 0;
};

/// What the members of a new communicator have agreed on.
struct Agreement {
  std::vector<NewMember> seats = {};  ///< in the order of their new ranks
  std::uint32_t context = 0;          ///< names it; no other one of its members has had the same
};

/// Makes this rank's blocks ready; all members do so before any of them makes the communicator.
void prepare_blocks(const WorldCore& world, const Agreement& agreement);

/// This rank's side. Between nodes it has two more communicators among the members of its node.
[[nodiscard]] std::shared_ptr<CommunicatorCore> make_communicator(WorldCore& world,
                                                                  const Agreement& agreement);

/// The agreement that stands from the beginning: all ranks, in order.
[[nodiscard]] Agreement world_agreement(int ranks);

}  // namespace rondo::transport
