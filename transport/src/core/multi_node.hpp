#pragma once

#include <cstdint>
#include <memory>

#include <rondo/transport/error.hpp>

#include "core/channel.hpp"
#include "core/operation_record.hpp"
#include "fabric/hierarchical.hpp"

namespace rondo::transport {

class CommunicatorCore;
class WorldCore;

/// What a communicator whose ranks are on several nodes has beside its queue of operations.
///
/// Its operations need no slots: each starts as soon as its turn has come, and algorithms over
/// links do the rest. That all ranks posted the same is found out by headers: each rank sends the
/// fingerprint of every operation to the next rank of the group, and compares what the previous
/// one sent. An operation is complete when its algorithm is done and both headers are through.
class MultiNode {
 public:
  /// `flat` is the group of all members, and gets its levels. `down` and `up`: see Hierarchy.
  MultiNode(const WorldCore& world, Group& flat, const Channel& channel,
            std::shared_ptr<CommunicatorCore> down, std::shared_ptr<CommunicatorCore> up);

  /// Sends the header of `record` and expects the previous rank's.
  void announce(OperationRecord& record) const;
  /// Are both headers through? Throws LinkFailure.
  [[nodiscard]] bool heard(OperationRecord& record) const;
  /// After it no link refers to the record's headers.
  void forget(OperationRecord& record) const;

  /// For reports: once the previous rank has been heard, any other may be missing.
  [[nodiscard]] bool waits_for(const OperationRecord& record, std::size_t member) const;
  void poison(const Error& error);

  /// The member whose headers this rank compares.
  [[nodiscard]] std::size_t previous() const noexcept { return previous_; }

  /// A hash of the members' ranks.
  [[nodiscard]] std::uint64_t members() const noexcept { return members_; }

 private:
  const Channel* channel_;
  std::size_t previous_;
  std::size_t next_;
  std::uint64_t members_;
  std::shared_ptr<CommunicatorCore> down_;
  std::shared_ptr<CommunicatorCore> up_;
  Hierarchy levels_;
};

}  // namespace rondo::transport
