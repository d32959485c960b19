// What a communicator tells the flight recorder about its operations.

#include <vector>

#include "core/communicator_core.hpp"
#include "core/world_core.hpp"

namespace rondo::transport {

void CommunicatorCore::begin_recording() {
  std::vector<int> ranks;
  for (const Member& member : group_.members) ranks.push_back(member.world_rank);
  log_ = world_->recorder().open_log(context_, group_.rank, ranks);
}

void CommunicatorCore::record_ordered(OperationRecord& record) noexcept {
  if (log_ == nullptr) return;
  const Posted& posted = record.posted;
  const std::size_t given = posted.input.bytes();
  record.stamp = recorder::record(
      *log_, {.number = posted.sequence - first_ + 1,
              .operation = static_cast<std::uint8_t>(posted.fingerprint.collective),
              .type = static_cast<std::uint8_t>(posted.fingerprint.type),
              .reduction = static_cast<std::uint8_t>(posted.fingerprint.op),
              .stage = record.stage,
              .partner = posted.fingerprint.root,
              .count = posted.fingerprint.count,
              .bytes = given > 0 ? given : posted.output.bytes()});
}

void CommunicatorCore::record_parts(OperationRecord& record) noexcept {
  if (log_ == nullptr) return;
  recorder::Facts facts{.operation = static_cast<std::uint8_t>(recorder::first_point_to_point +
                                                               static_cast<unsigned>(record.call)),
                        .stage = record.stage};
  std::uint64_t taken = 0;
  for (std::size_t i = 0; i < record.parts.size(); ++i) {
    const Part& part = record.parts[i];
    if (part.sends) facts.bytes += part.out.bytes();
    if (part.receives) taken += part.in.bytes();
  }
  if (facts.bytes == 0) facts.bytes = taken;
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

}  // namespace rondo::transport
