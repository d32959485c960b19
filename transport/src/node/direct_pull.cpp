#include "node/direct_pull.hpp"

#include <algorithm>

#include "collective/traffic.hpp"
#include "node/columns.hpp"
#include "node/rows.hpp"
#include "node/slots.hpp"

namespace rondo::transport {

// What this rank takes from `member`, and where it puts it.
DirectPull::Copy DirectPull::copy_from(const Group& group, const Posted& posted,
                                       std::size_t member) {
  const ConstBlock input = remote_input(group, member, posted);
  switch (posted.fingerprint.collective) {
    case shm::Collective::allgather:
      return {column_of(posted.output, posted, member), input};
    case shm::Collective::alltoall:
      return {column_of(posted.output, posted, member), column_of(input, posted, group.index())};
    default:
      return {posted.output, input};
  }
}

Progress DirectPull::step(Group& group, const Posted& posted) {
  const bool one_gives = posted.fingerprint.collective == shm::Collective::broadcast;
  const auto root = static_cast<std::size_t>(posted.fingerprint.root);
  const std::size_t sources = one_gives ? 1 : group.count();
  const std::size_t member = one_gives ? root : (group.index() + source_) % group.count();

  if (!one_gives || group.index() != root) {
    const Copy copy = copy_from(group, posted, member);
    const std::size_t bytes = std::min(tile_bytes, copy.into.bytes() - position_);
    copy_rows(copy.into, copy.from, position_, bytes);
    position_ += bytes;
    if (position_ < copy.into.bytes()) return Progress::moved;
  }

  position_ = 0;
  source_ += 1;
  if (source_ < sources) return Progress::moved;
  count(*group.counters, traffic_of(posted, Protocol::direct, group.index(), group.count()));
  return Progress::done;
}

bool DirectPull::waits_for(const Group& /*group*/, std::size_t /*member*/) const { return false; }

}  // namespace rondo::transport
