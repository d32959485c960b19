#pragma once

#include <cstdint>
#include <memory>

#include <rondo/transport/error.hpp>

#include "collective/hierarchical/hierarchical.hpp"
#include "communicator/operation_record.hpp"
#include "message/channel.hpp"

namespace rondo::transport {

class CommunicatorCore;
class WorldCore;

/// The part that a communicator over several nodes has beside its queue of operations.
///
/// Its operations need no slots: each starts as soon as its turn has come, and algorithms over
/// links do the rest. Headers find out whether all ranks posted the same: each rank sends the
/// fingerprint of every operation to the next rank of the group, with the first step of its
/// algorithm, and compares what the previous one sent. An operation is complete when its algorithm
/// is done and both headers are through.
class MultiNode {
 public:
  /// `flat` is the group of all members, and gets its levels. The two communicators of this node
  /// take the operations before and after those between nodes; see Hierarchy.
  MultiNode(WorldCore& world, Group& flat, Channel& channel,
            std::shared_ptr<CommunicatorCore> node_scatter,
            std::shared_ptr<CommunicatorCore> node_gather);

  /// Makes the header of `record`, and posts the receive of the previous rank's.
  void begin_headers(OperationRecord& record) const;
  /// Throws LinkFailure.
  void require_header_received(const OperationRecord& record) const;
  /// Are both headers through? Throws LinkFailure.
  [[nodiscard]] bool headers_are_through(OperationRecord& record) const;
  /// After it no link refers to the record's headers.
  void cancel_headers(OperationRecord& record) const;

  /// For reports: is that member known to keep `record` waiting? `flat` is the group of all
  /// members.
  [[nodiscard]] bool waits_for(const OperationRecord& record, const Group& flat,
                               std::size_t member) const;
  /// Fails the communicators of this node, too.
  void poison(const Error& error);

  /// The member whose headers this rank compares.
  [[nodiscard]] std::size_t previous() const noexcept { return previous_; }

  /// A hash of the members' ranks.
  [[nodiscard]] std::uint64_t members_hash() const noexcept { return members_hash_; }

 private:
  const Channel* channel_;
  std::size_t previous_;
  std::size_t next_;
  std::uint64_t members_hash_;
  std::shared_ptr<CommunicatorCore> node_scatter_;
  std::shared_ptr<CommunicatorCore> node_gather_;
  Hierarchy levels_;
};

}  // namespace rondo::transport
