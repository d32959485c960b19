// Which algorithm runs an operation whose ranks are on several nodes.

#include <stdexcept>

#include "core/communicator_core.hpp"
#include "core/multi_node.hpp"

namespace rondo::transport {
namespace {

template <typename Algorithm>
Operation* emplace(OperationRecord& record, Group& group) {
  return &record.storage.emplace<Algorithm>(group, record.posted);
}

Operation* start_allreduce(OperationRecord& record, Group& group, bool shared_nodes) {
  if (shared_nodes) return emplace<HierarchicalAllreduce>(record, group);
  if (group.allreduce_table.pick(record.posted.input.bytes()) == AllreduceAlgorithm::ring) {
    return emplace<RingAllreduce>(record, group);
  }
  return emplace<DoublingAllreduce>(record, group);
}

Operation* start_on_links(OperationRecord& record, Group& group, bool shared_nodes) {
  switch (record.posted.fingerprint.collective) {
    case shm::Collective::allreduce:
      return start_allreduce(record, group, shared_nodes);
    case shm::Collective::reduce_scatter:
      return emplace<RingReduceScatter>(record, group);
    case shm::Collective::allgather:
      return emplace<RingAllgather>(record, group);
    case shm::Collective::broadcast:
      return emplace<TreeBroadcast>(record, group);
    case shm::Collective::reduce:
      return emplace<TreeReduce>(record, group);
    case shm::Collective::alltoall:
      return emplace<PairwiseAlltoall>(record, group);
    case shm::Collective::barrier:
      return emplace<DisseminationBarrier>(record, group);
  }
  throw std::logic_error("unknown collective");
}

}  // namespace

void CommunicatorCore::start_spanning(OperationRecord& record) {
  record.operation = start_on_links(record, group_, span_->has_shared_nodes());
  record.enter(Stage::running);
}

}  // namespace rondo::transport
