#include "collective/small.hpp"

#include "collective/rows.hpp"
#include "collective/slots.hpp"
#include "collective/traffic.hpp"
#include "reduce/reduce.hpp"

namespace rondo::transport {
namespace {

void reduce_all(Group& group, const Posted& posted) {
  const std::size_t bytes = posted.input.bytes();
  for (std::size_t r = 0; r < group.count(); ++r) {
    group.sources[r] = payload_of(*group.members[r].block, posted.sequence, bytes);
  }
  std::byte* destination = posted.output.data;
  find_reduction(posted.fingerprint.type, posted.fingerprint.op)(
      group.sources.data(), group.count(), &destination, 1, 0, posted.fingerprint.count);
}

void take_from_root(Group& group, const Posted& posted) {
  const auto root = static_cast<std::size_t>(posted.fingerprint.root);
  if (root == group.index()) return;
  const std::size_t bytes = posted.output.bytes();
  copy_into_rows(posted.output, 0, payload_of(*group.members[root].block, posted.sequence, bytes),
                 bytes);
}

void gather_all(Group& group, const Posted& posted) {
  if (posted.output.bytes() == 0) return;
  Block column = posted.output;
  for (std::size_t r = 0; r < group.count(); ++r) {
    column.row_bytes = posted.share_row_bytes(r);
    const std::size_t bytes = column.bytes();
    copy_into_rows(column, 0, payload_of(*group.members[r].block, posted.sequence, bytes), bytes);
    column.data += column.row_bytes;
  }
}

}  // namespace

void write_small_payload(Group& group, const Posted& posted) noexcept {
  const bool gives = posted.fingerprint.collective != shm::Collective::broadcast ||
                     posted.fingerprint.root == group.rank;
  const std::size_t bytes = posted.input.bytes();
  if (!gives || bytes == 0) return;
  copy_from_rows(payload_of(group.mine(), posted.sequence, bytes), posted.input, 0, bytes);
}

Progress SmallOperation::step(Group& group, const Posted& posted) {
  switch (posted.fingerprint.collective) {
    case shm::Collective::allreduce:
      if (posted.fingerprint.count > 0) reduce_all(group, posted);
      break;
    case shm::Collective::broadcast:
      take_from_root(group, posted);
      break;
    case shm::Collective::allgather:
      gather_all(group, posted);
      break;
    case shm::Collective::barrier:
    case shm::Collective::reduce_scatter:
    case shm::Collective::reduce:
    case shm::Collective::alltoall:
      break;
  }
  count(*group.counters, traffic_of(posted, Regime::small, group.index(), group.count()));
  return Progress::done;
}

bool SmallOperation::waits_for(const Group& /*group*/, std::size_t /*member*/) const {
  return false;
}

}  // namespace rondo::transport
