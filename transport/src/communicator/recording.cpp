// Tells a rank's flight recorder about operations, and describes them in errors.

#include <algorithm>
#include <string>
#include <vector>

#include "communicator/communicator_core.hpp"
#include "recorder/names.hpp"
#include "recorder/recorder.hpp"
#include "world/world_core.hpp"

namespace rondo::transport {

// The log names the members by their World ranks: a reader has no communicators to ask.
void CommunicatorCore::begin_recording() {
  std::vector<int> ranks;
  for (const Member& member : group_.members) ranks.push_back(member.world_rank);
  log_ = world_->recorder().open_log(context_, group_.rank, ranks);
}

// A collective: its number, and the bytes that this rank puts in, or where it puts in nothing,
// gets.
void CommunicatorCore::record_ordered(OperationRecord& record) noexcept {
  if (log_ == nullptr) return;
  const Posted& posted = record.posted;
  const std::size_t input = posted.input.bytes();
  record.stamp = recorder::record(
      *log_, {.number = posted.sequence - first_ + 1,
              .operation = static_cast<std::uint8_t>(posted.fingerprint.collective),
              .type = static_cast<std::uint8_t>(posted.fingerprint.type),
              .reduction = static_cast<std::uint8_t>(posted.fingerprint.op),
              .stage = record.stage,
              .partner = posted.fingerprint.root,
              .count = posted.fingerprint.count,
              .bytes = input > 0 ? input : posted.output.bytes()});
}

// A message, or several at once: of these the first stands for all, and bytes are added up.
void CommunicatorCore::record_parts(OperationRecord& record) noexcept {
  if (log_ == nullptr) return;
  recorder::Facts facts{.operation = static_cast<std::uint8_t>(recorder::first_point_to_point +
                                                               static_cast<unsigned>(record.call)),
                        .stage = record.stage};
  std::uint64_t received = 0;
  for (std::size_t i = 0; i < record.parts.size(); ++i) {
    const Part& part = record.parts[i];
    if (part.sends) facts.bytes += part.out.bytes();
    if (part.receives) received += part.in.bytes();
  }
  // Sent bytes count; a pure receive tells how much it may receive.
  if (facts.bytes == 0) facts.bytes = received;
  if (record.parts.size() > 0) {
    const Part& first = record.parts[0];
    const ElementType type = first.sends ? first.out.type : first.in.type;
    facts.number = first.sends ? first.out_label : first.in_label;
    facts.partner = static_cast<std::int32_t>(first.member);
    facts.type = static_cast<std::uint8_t>(type);
    facts.count = facts.bytes / size_of(type);
  }
  record.stamp = recorder::record(*log_, facts);
}

std::string CommunicatorCore::describe(const OperationRecord& record) const {
  if (!record.ordered) return describe_parts(record);
  return describe(record.posted.fingerprint, record.posted.sequence);
}

// All ranks that errors name are the World's.
std::string CommunicatorCore::describe(shm::Fingerprint fingerprint, std::uint64_t sequence) const {
  const auto root = static_cast<std::size_t>(fingerprint.root);
  if (root < group_.count()) fingerprint.root = group_.members[root].world_rank;
  return transport::describe(fingerprint, sequence - first_ + 1);
}

// "sendrecv with rank 1, 3": a peer that is both sent to and received from is named once.
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

}  // namespace rondo::transport
