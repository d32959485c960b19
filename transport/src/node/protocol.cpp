// How many bytes each collective moves inside a node. The counters are raised by these closed
// forms, once per operation, so that no copying loop has to count.

#include "node/protocol.hpp"

#include <algorithm>

#include "collective/blocks.hpp"

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
  }
  return {};
}

Progress finish(const Group& group, const Posted& posted, Protocol protocol) noexcept {
  const Traffic traffic = traffic_of(posted, protocol, group.index(), group.count());
  group.counters->operations += 1;
  group.counters->loaded_bytes += traffic.loaded_bytes;
  group.counters->stored_bytes += traffic.stored_bytes;
  return Progress::done;
}

}  // namespace rondo::transport
