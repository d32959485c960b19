#include "node/direct_reduce_scatter.hpp"

#include <algorithm>

#include "collective/traffic.hpp"
#include "node/columns.hpp"
#include "node/slots.hpp"

namespace rondo::transport {

DirectReduceScatter::DirectReduceScatter(const Posted& posted)
    : reduce_(find_reduction(posted.fingerprint.type, posted.fingerprint.op)) {}

Progress DirectReduceScatter::step(Group& group, const Posted& posted) {
  const std::size_t end = std::min(posted.output.bytes(), position_ + tile_bytes);
  reduce_columns(group, posted, reduce_, {position_, end}, [&](std::size_t member) {
    return column_of(remote_input(group, member, posted), posted, group.index());
  });
  position_ = end;
  if (position_ < posted.output.bytes()) return Progress::moved;
  count(*group.counters, traffic_of(posted, Protocol::direct, group.index(), group.count()));
  return Progress::done;
}

bool DirectReduceScatter::waits_for(const Group& /*group*/, std::size_t /*member*/) const {
  return false;
}

}  // namespace rondo::transport
