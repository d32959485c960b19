#include "node/small.hpp"

#include "collective/traffic.hpp"
#include "node/columns.hpp"
#include "node/rows.hpp"
#include "node/slots.hpp"
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

void reduce_own(Group& group, const Posted& posted) {
  const ConstBlock& input = posted.input;
  reduce_columns(group, posted, find_reduction(posted.fingerprint.type, posted.fingerprint.op),
                 {0, posted.output.bytes()}, [&](std::size_t member) {
                   const std::byte* payload =
                       payload_of(*group.members[member].block, posted.sequence, input.bytes());
                   return column_of(ConstBlock{payload, input.type, input.rows, input.row_bytes,
                                               input.row_bytes},
                                    posted, group.index());
                 });
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

void exchange_all(Group& group, const Posted& posted) {
  const std::size_t bytes = posted.input.bytes();
  const std::size_t share = posted.row_bytes_each;
  if (bytes == 0) return;
  for (std::size_t r = 0; r < group.count(); ++r) {
    const std::byte* payload = payload_of(*group.members[r].block, posted.sequence, bytes);
    copy_into_rows(posted.output, r * share, payload + group.index() * share, share);
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
      break;
    case shm::Collective::reduce_scatter:
      reduce_own(group, posted);
      break;
    case shm::Collective::reduce:
      if (posted.fingerprint.root == group.rank && posted.fingerprint.count > 0) {
        reduce_all(group, posted);
      }
      break;
    case shm::Collective::alltoall:
      exchange_all(group, posted);
      break;
  }
  count(*group.counters, traffic_of(posted, Protocol::small, group.index(), group.count()));
  return Progress::done;
}

bool SmallOperation::waits_for(const Group& /*group*/, std::size_t /*member*/) const {
  return false;
}

}  // namespace rondo::transport
