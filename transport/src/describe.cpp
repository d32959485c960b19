// What operations and their failures are called in messages.

#include <array>
#include <string>

#include "collective/slots.hpp"
#include "communicator_core.hpp"
#include "describe.hpp"
#include "world_core.hpp"

namespace rondo::transport {
namespace {

const char* name_of(shm::Collective collective) {
  switch (collective) {
    case shm::Collective::allreduce:
      return "allreduce";
    case shm::Collective::broadcast:
      return "broadcast";
    case shm::Collective::allgather:
      return "allgather";
    case shm::Collective::barrier:
      return "barrier";
    case shm::Collective::reduce_scatter:
      return "reduce_scatter";
    case shm::Collective::reduce:
      return "reduce";
    case shm::Collective::alltoall:
      return "alltoall";
  }
  return "unknown operation";
}

const char* name_of(ElementType type) {
  switch (type) {
    case ElementType::f32:
      return "f32";
    case ElementType::f64:
      return "f64";
    case ElementType::bf16:
      return "bf16";
    case ElementType::i32:
      return "i32";
    case ElementType::i64:
      return "i64";
    case ElementType::u8:
      return "u8";
  }
  return "?";
}

const char* name_of(ReduceOp op) {
  switch (op) {
    case ReduceOp::sum:
      return "sum";
    case ReduceOp::min:
      return "min";
    case ReduceOp::max:
      return "max";
  }
  return "?";
}

bool reduces(shm::Collective collective) {
  return collective == shm::Collective::allreduce || collective == shm::Collective::reduce ||
         collective == shm::Collective::reduce_scatter;
}

}  // namespace

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
  static constexpr std::array names = {"send", "recv", "sendrecv", "put_signal", "wait_signal"};
  std::string text = names[static_cast<std::size_t>(record.call)];
  for (std::size_t i = 0; i < record.parts.size(); ++i) {
    const Part& part = record.parts[i];
    text +=
        (i == 0 ? " with rank " : ", ") + std::to_string(group_.members[part.member].world_rank);
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
