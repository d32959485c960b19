#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include <rondo/transport/error.hpp>

#include "collective/algorithms.hpp"
#include "collective/hierarchical/hierarchical.hpp"
#include "communicator/operation_record.hpp"
#include "communicator/slot_stage.hpp"
#include "message/channel.hpp"

namespace rondo::transport {

class CommunicatorCore;

/// The operations on this node of a communicator that spans nodes; parts of its current one.
///
/// They go through slots as those of a communicator on one node do. One runs at a time, the next
/// ones are published meanwhile.
class NodeQueue final : public NodeOperations {
 public:
  /// `core` is under construction; messages on the node have the lane `lane`.
  NodeQueue(CommunicatorCore& core, std::size_t lane, std::uint64_t first);

  [[nodiscard]] Posted& next() noexcept override { return at(posted_).posted; }
  void post() override;
  bool step() override;
  [[nodiscard]] std::size_t under_way() const noexcept override { return posted_ - ended_; }
  [[nodiscard]] bool waits_for(std::size_t node_rank) const override;
  void clear() noexcept override { storage_.clear(); }

  void fail(const Error& error) { slots_.fail(error); }
  [[nodiscard]] std::uint64_t last_sequence() const noexcept { return posted_ - 1; }

 private:
  [[nodiscard]] SlotOperation& at(std::uint64_t sequence) noexcept {
    return operations_[sequence % operations_.size()];
  }
  [[nodiscard]] const SlotOperation& at(std::uint64_t sequence) const noexcept {
    return operations_[sequence % operations_.size()];
  }
  bool run_oldest();

  CommunicatorCore& core_;
  Group group_;
  Channel channel_;
  SlotStage slots_;
  std::array<SlotOperation, at_once + 1> operations_;  // one is to be described
  OperationStorage<> storage_;                         // of the one that runs
  // Sequences: below these operations have ended, are over on this rank, published, posted.
  std::uint64_t ended_;
  std::uint64_t over_;
  std::uint64_t published_;
  std::uint64_t posted_;
};

}  // namespace rondo::transport
