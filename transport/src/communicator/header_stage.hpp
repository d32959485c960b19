#pragma once

#include <cstddef>
#include <cstdint>

#include <rondo/transport/error.hpp>

#include "collective/hierarchical/hierarchical.hpp"
#include "communicator/node_queue.hpp"
#include "communicator/operation_record.hpp"
#include "message/channel.hpp"

namespace rondo::transport {

class CommunicatorCore;
class WorldCore;

/// How the members of a communicator over several nodes agree on its operations: by headers, which
/// are messages. See SlotStage, which has the same functions.
///
/// Operations need no slots: each starts as soon as its turn has come, and algorithms over links do
/// the rest. Each rank sends the fingerprint of every operation to the next rank of the group, with
/// the first step of its algorithm, and compares what the previous one sent. An operation is
/// complete when its algorithm is done and both headers are through.
class HeaderStage {
 public:
  /// The group of `core` gets its levels.
  HeaderStage(CommunicatorCore& core, std::uint64_t first_on_node);

  /// Nothing limits how many operations are under way: each has its own header and label.
  [[nodiscard]] bool may_publish(const OperationRecord& /*record*/) const noexcept { return true; }
  void publish(OperationRecord& record) const;
  [[nodiscard]] bool all_have_posted(OperationRecord& /*record*/) const noexcept { return true; }
  void start(OperationRecord& record, OperationStorage<>& storage) const;
  [[nodiscard]] Progress step(OperationRecord& record) const;
  void end_own_part(OperationRecord& /*record*/) const noexcept {}
  [[nodiscard]] bool all_have_ended(OperationRecord& record) const;
  [[nodiscard]] bool finish(OperationRecord& record) const;

  void compare_all() const;
  [[nodiscard]] bool waits_for(const OperationRecord& record, std::size_t member) const;
  [[nodiscard]] const OperationRecord& front_of(const OperationRecord& record) const;

  /// Operations that are given up may wait for what they have posted on this node.
  void fail(const Error& error) { on_node_.fail(error); }
  /// After it no link refers to the record's headers.
  void give_up(OperationRecord& record) const;

  /// The sequence of the last operation on this node.
  [[nodiscard]] std::uint64_t last_on_node() const noexcept { return on_node_.last_sequence(); }
  /// A hash of the members' ranks.
  [[nodiscard]] std::uint64_t members_hash() const noexcept { return members_hash_; }

 private:
  void require_received(const OperationRecord& record) const;
  void compare(OperationRecord& record) const;
  [[nodiscard]] bool keeps_waiting(const OperationRecord& record, std::size_t member) const;

  CommunicatorCore& core_;
  Group& group_;
  WorldCore& world_;
  Channel& channel_;
  std::size_t previous_;  // the member whose headers this rank compares
  std::size_t next_;
  std::uint64_t members_hash_;
  Hierarchy levels_;
  NodeQueue on_node_;
};

}  // namespace rondo::transport
