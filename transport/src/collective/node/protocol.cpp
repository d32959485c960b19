// The small protocol: operations whose payload fits into a slot. Everyone has written its own
// payload before the step begins, and reads all of them, in rank order. One synchronisation is
// enough, because the slots are not used again before every rank has consumed the operation.
//
// Loads (P-1) * bytes per rank for allreduce, allgather and reduce (the root), bytes for
// broadcast, (P-1)/P * bytes for reduce_scatter and alltoall.

#include "collective/node/protocol.hpp"

#include <algorithm>

#include "collective/algorithms.hpp"
#include "collective/blocks.hpp"
#include "reduce/reduce.hpp"

namespace rondo::transport {
namespace {

class SmallOperation final : public Operation {
 public:
  SmallOperation(Group& /*group*/, const Posted& /*posted*/) {}
  Progress step(Group& group, const Posted& posted) override;

 private:
  static const std::byte* payload(const Group& group, const Posted& posted, std::size_t member,
                                  std::size_t bytes) {
    return payload_of(*group.members[member].block, posted.sequence, bytes);
  }
  static void reduce_all(Group& group, const Posted& posted);
  static void reduce_own_columns(Group& group, const Posted& posted);
  static void copy_from_root(const Group& group, const Posted& posted);
  static void gather_all(const Group& group, const Posted& posted);
  static void exchange_all(const Group& group, const Posted& posted);
};

// Every rank that wants the result reduces all payloads itself: for so few bytes that is faster
// than a second synchronisation. Its own it has at hand.
void SmallOperation::reduce_all(Group& group, const Posted& posted) {
  if (posted.fingerprint.count == 0) return;
  const std::size_t bytes = posted.input.bytes();
  for (std::size_t r = 0; r < group.count(); ++r) {
    const bool own = r == group.index();
    group.sources[r] = own ? posted.input.data : payload(group, posted, r, bytes);
  }
  std::byte* destination = posted.output.data;
  find_reduction(posted.fingerprint.type, posted.fingerprint.op)(
      group.sources.data(), group.count(), &destination, 1, 0, posted.fingerprint.count);
  group.count_moved((group.count() - 1) * bytes);
}

// Payloads are packed: their rows have no gaps, whatever the input had.
void SmallOperation::reduce_own_columns(Group& group, const Posted& posted) {
  const ConstBlock& input = posted.input;
  reduce_columns(group, posted, find_reduction(posted.fingerprint.type, posted.fingerprint.op),
                 {0, posted.output.bytes()}, [&](std::size_t member) {
                   const ConstBlock packed{payload(group, posted, member, input.bytes()),
                                           input.type, input.rows, input.row_bytes,
                                           input.row_bytes};
                   return column_of(packed, posted, group.index());
                 });
}

void SmallOperation::copy_from_root(const Group& group, const Posted& posted) {
  const auto root = static_cast<std::size_t>(posted.fingerprint.root);
  if (root == group.index()) return;
  const std::size_t bytes = posted.output.bytes();
  copy_into_rows(group.team, posted.output, 0, payload(group, posted, root, bytes), bytes);
  group.count_moved(bytes);
}

// The shares stand side by side in each row of the output, in rank order.
void SmallOperation::gather_all(const Group& group, const Posted& posted) {
  if (posted.output.bytes() == 0) return;
  Block column = posted.output;
  for (std::size_t r = 0; r < group.count(); ++r) {
    column.row_bytes = posted.share_row_bytes(r);
    const std::size_t bytes = column.bytes();
    copy_into_rows(group.team, column, 0, payload(group, posted, r, bytes), bytes);
    if (r != group.index()) group.count_moved(bytes);
    column.data += column.row_bytes;
  }
}

// A payload is all that its rank sends: this rank copies out its own part of each.
void SmallOperation::exchange_all(const Group& group, const Posted& posted) {
  const std::size_t bytes = posted.input.bytes();
  const std::size_t share = posted.row_bytes_each;
  if (bytes == 0) return;
  for (std::size_t r = 0; r < group.count(); ++r) {
    const std::byte* from = payload(group, posted, r, bytes) + group.index() * share;
    copy_into_rows(group.team, posted.output, r * share, from, share);
    if (r != group.index()) group.count_moved(share);
  }
}

Progress SmallOperation::step(Group& group, const Posted& posted) {
  switch (posted.fingerprint.collective) {
    case shm::Collective::allreduce:
      reduce_all(group, posted);
      break;
    case shm::Collective::broadcast:
      copy_from_root(group, posted);
      break;
    case shm::Collective::allgather:
      gather_all(group, posted);
      break;
    case shm::Collective::barrier:
      break;
    case shm::Collective::reduce_scatter:
      reduce_own_columns(group, posted);
      break;
    case shm::Collective::reduce:
      if (posted.is_root(group.index())) reduce_all(group, posted);
      break;
    case shm::Collective::alltoall:
      exchange_all(group, posted);
      break;
    case shm::Collective::gather:
    case shm::Collective::scatter:
    case shm::Collective::alltoallv:
    case shm::Collective::scan:
    case shm::Collective::exscan:
      break;  // run by messages, never here
  }
  return Progress::done;
}

bool suits_any(const Group& /*group*/, const Posted& /*posted*/) { return true; }

}  // namespace

constexpr Algorithm algorithms::small = algorithm_of<SmallOperation>(Protocol::small, &suits_any);

// Two ranks reduce 2 KiB 1.4 times as fast by the direct protocol, and 4 KiB twice as fast; where
// both are outside of their arenas, their operation becomes a small one after all. More ranks gain
// nothing by another synchronisation. For an allgather the largest share counts.
Protocol protocol_of(const Group& group, const Posted& posted, std::size_t small_bytes) noexcept {
  constexpr std::size_t most_small_of_two = 1024;
  std::size_t bytes = posted.input.bytes();
  switch (posted.fingerprint.collective) {
    case shm::Collective::gather:
    case shm::Collective::scatter:
    case shm::Collective::alltoallv:
    case shm::Collective::scan:
    case shm::Collective::exscan:
      return Protocol::links;
    case shm::Collective::allreduce:
      if (group.count() == 2) small_bytes = std::min(small_bytes, most_small_of_two);
      break;
    case shm::Collective::allgather:
      for (const std::size_t share : posted.row_bytes_of) {
        bytes = std::max(bytes, share * posted.input.rows);
      }
      break;
    default:
      break;
  }
  return bytes <= small_bytes ? Protocol::small : Protocol::staged;
}

// A barrier has no bytes, and of a broadcast the root alone sends.
void write_small_payload(Group& group, const Posted& posted) noexcept {
  const bool sends =
      posted.fingerprint.collective != shm::Collective::broadcast || posted.is_root(group.index());
  const std::size_t bytes = posted.input.bytes();
  if (!sends || bytes == 0) return;
  copy_from_rows(group.team, payload_of(group.mine(), posted.sequence, bytes), posted.input, 0,
                 bytes);
}

}  // namespace rondo::transport
