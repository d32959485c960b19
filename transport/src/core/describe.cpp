// What operations and their failures are called in messages.

#include <algorithm>
#include <cstddef>
#include <string>
#include <vector>

#include "core/communicator_core.hpp"
#include "core/describe.hpp"
#include "core/names.hpp"
#include "core/world_core.hpp"
#include "node/protocol.hpp"

namespace rondo::transport {

std::string describe(const shm::Fingerprint& fingerprint, std::uint64_t number) {
  std::string text = name_of(fingerprint.collective);
  text += " #" + std::to_string(number);
  if (fingerprint.collective == shm::Collective::barrier) return text;
  text += " of " + std::to_string(fingerprint.count) + " " + name_of(fingerprint.type);
  if (reduces(fingerprint.collective)) {
    text += std::string(" (") + name_of(fingerprint.op) + ")";
  }
  if (fingerprint.collective == shm::Collective::broadcast) {
    text += " from rank " + std::to_string(fingerprint.root);
  }
  if (fingerprint.collective == shm::Collective::reduce) {
    text += " to rank " + std::to_string(fingerprint.root);
  }
  if (fingerprint.counts_hash != 0) {
    text += " (shares hash " + std::to_string(fingerprint.counts_hash % 1'000'000) + ")";
  }
  return text;
}

std::string CommunicatorCore::describe(const OperationRecord& record) const {
  if (!record.ordered) return describe_parts(record);
  return transport::describe(record.posted.fingerprint, record.posted.sequence - first_ + 1);
}

std::string CommunicatorCore::describe_parts(const OperationRecord& record) const {
  std::string text = name_of(record.call);
  std::vector<std::size_t> named;
  for (std::size_t i = 0; i < record.parts.size(); ++i) {
    const std::size_t member = record.parts[i].member;
    if (std::ranges::find(named, member) != named.end()) continue;  // it sends and receives
    text += (i == 0 ? " with rank " : ", ") + std::to_string(group_.members[member].world_rank);
    named.push_back(member);
  }
  return text;
}

void CommunicatorCore::compare(const OperationRecord& record, std::size_t member) const {
  const std::uint64_t sequence = record.posted.sequence;
  compare(record, member, slot_of(*group_.members[member].block, sequence).fingerprint, sequence);
}

void CommunicatorCore::compare(const OperationRecord& record, std::size_t member,
                               const shm::Fingerprint& theirs, std::uint64_t sequence) const {
  if (theirs == record.posted.fingerprint) return;
  const int peer = group_.members[member].world_rank;
  const RankInfo& info = world_->peer(peer).info;
  const std::string mine = describe(record);
  throw Error(Errc::mismatch,
              "ranks posted different operations: rank " + std::to_string(world_->rank()) + " " +
                  mine + ", rank " + std::to_string(peer) + " " +
                  transport::describe(theirs, sequence - first_ + 1) +
                  "; all ranks must post the same collectives in the same order",
              {.rank = peer, .pid = info.pid, .host = info.host, .operation = mine});
}

std::string name_rank(const WorldCore& world, int rank) {
  const RankInfo& info = world.peer(rank).info;
  return "rank " + std::to_string(rank) + " (pid " + std::to_string(info.pid) + " on " + info.host +
         ")";
}

}  // namespace rondo::transport
