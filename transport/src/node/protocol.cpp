// How many bytes each collective moves inside a node, and the small protocol. The counters are
// raised by closed forms, once per operation, so that no copying loop has to count.
//
// The small protocol: operations whose payload fits into a slot. Everyone has written its own
// payload before the step begins, and reads all of them, in rank order. One synchronisation is
// enough, because the slots are not used again before every rank has consumed the operation.
//
// Loads (P-1) * bytes per rank for allreduce, allgather and reduce (the root), bytes for
// broadcast, (P-1)/P * bytes for reduce_scatter and alltoall.

#include "node/protocol.hpp"

#include <algorithm>

#include "collective/algorithms.hpp"
#include "collective/blocks.hpp"
#include "reduce/reduce.hpp"

namespace rondo::transport {
namespace {

// The slices that one rank reduces of a staged allreduce or reduce: each round is cut anew.
std::uint64_t staged_slice_bytes(std::size_t bytes, std::size_t rank, std::size_t ranks) noexcept {
  std::uint64_t sum = 0;
  for (std::size_t begin = 0; begin < bytes; begin += staging_bytes) {
    const std::size_t round = std::min(staging_bytes, bytes - begin);
    sum += slice(round, ranks, rank, cache_line_bytes).size();
  }
  return sum;
}

// A rank loads its slice of all other inputs, and stores its result for all that want it. In the
// small protocol whoever wants the result loads everything instead.
Traffic traffic_of_reduction(const Posted& posted, Protocol protocol, std::size_t rank,
                             std::size_t ranks) noexcept {
  const std::size_t element = size_of(posted.fingerprint.type);
  const std::size_t bytes = posted.fingerprint.count * element;
  const bool to_all = posted.fingerprint.collective == shm::Collective::allreduce;
  const bool receives = to_all || posted.is_root(rank);
  if (protocol == Protocol::small) return {.loaded_bytes = receives ? (ranks - 1) * bytes : 0};
  const std::uint64_t own =
      protocol == Protocol::staged
          ? staged_slice_bytes(bytes, rank, ranks)
          : slice(posted.fingerprint.count, ranks, rank, cache_line_bytes / element).size() *
                element;
  const std::uint64_t to_others = to_all ? ranks - 1 : receives ? 0 : 1;
  return {.loaded_bytes = (ranks - 1) * own, .stored_bytes = to_others * own};
}

Traffic traffic_of_allgather(const Posted& posted, std::size_t rank, std::size_t ranks) noexcept {
  std::uint64_t row_bytes = 0;
  for (std::size_t r = 0; r < ranks; ++r) {
    if (r != rank) row_bytes += posted.share_row_bytes(r);
  }
  return {.loaded_bytes = row_bytes * posted.output.rows};
}

}  // namespace

Traffic traffic_of(const Posted& posted, Protocol protocol, std::size_t rank,
                   std::size_t ranks) noexcept {
  switch (posted.fingerprint.collective) {
    case shm::Collective::allreduce:
    case shm::Collective::reduce:
      return traffic_of_reduction(posted, protocol, rank, ranks);
    case shm::Collective::broadcast:
      return {.loaded_bytes = posted.is_root(rank) ? 0 : posted.output.bytes()};
    case shm::Collective::allgather:
      return traffic_of_allgather(posted, rank, ranks);
    case shm::Collective::barrier:
      return {};
    case shm::Collective::reduce_scatter:
      return {.loaded_bytes = (ranks - 1) * posted.output.bytes()};
    case shm::Collective::alltoall:
      return {.loaded_bytes = (ranks - 1) * posted.row_bytes_each};
    case shm::Collective::gather:
    case shm::Collective::scatter:
    case shm::Collective::alltoallv:
    case shm::Collective::scan:
    case shm::Collective::exscan:
      return {};  // the link over shared memory counts messages
  }
  return {};
}

void count(const Group& group, const Posted& posted, Protocol protocol) noexcept {
  const Traffic traffic = traffic_of(posted, protocol, group.index(), group.count());
  group.counters->operations += 1;
  group.counters->loaded_bytes += traffic.loaded_bytes;
  group.counters->stored_bytes += traffic.stored_bytes;
}

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
}

// The shares stand side by side in each row of the output, in rank order.
void SmallOperation::gather_all(const Group& group, const Posted& posted) {
  if (posted.output.bytes() == 0) return;
  Block column = posted.output;
  for (std::size_t r = 0; r < group.count(); ++r) {
    column.row_bytes = posted.share_row_bytes(r);
    const std::size_t bytes = column.bytes();
    copy_into_rows(group.team, column, 0, payload(group, posted, r, bytes), bytes);
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
