#include "collective/traffic.hpp"

#include "collective/slices.hpp"

namespace rondo::transport {
namespace {

constexpr std::size_t cache_line = 64;

Traffic of_allreduce(const Posted& posted, Regime regime, std::size_t rank, std::size_t ranks) {
  const std::size_t element = size_of(posted.fingerprint.type);
  const std::size_t bytes = posted.fingerprint.count * element;
  if (regime == Regime::small) return {.loaded_bytes = (ranks - 1) * bytes};
  if (regime == Regime::direct) {
    const Range own = slice(posted.fingerprint.count, ranks, rank, cache_line / element);
    const std::uint64_t across = (ranks - 1) * own.size() * element;
    return {.loaded_bytes = across, .stored_bytes = across};
  }
  return {.loaded_bytes = staged_allreduce_bytes(bytes, rank, ranks)};
}

Traffic of_allgather(const Posted& posted, std::size_t rank, std::size_t ranks) {
  std::uint64_t row_bytes = 0;
  for (std::size_t r = 0; r < ranks; ++r) {
    if (r != rank) row_bytes += posted.share_row_bytes(r);
  }
  return {.loaded_bytes = row_bytes * posted.output.rows};
}

}  // namespace

std::uint64_t staged_allreduce_bytes(std::size_t bytes, std::size_t rank,
                                     std::size_t ranks) noexcept {
  std::uint64_t sum = 0;
  for (std::size_t begin = 0; begin < bytes; begin += staging_bytes) {
    const std::size_t round = std::min(staging_bytes, bytes - begin);
    const std::size_t own = slice(round, ranks, rank, cache_line).size();
    sum += (ranks - 1) * own + (round - own);
  }
  return sum;
}

Traffic traffic_of(const Posted& posted, Regime regime, std::size_t rank,
                   std::size_t ranks) noexcept {
  switch (posted.fingerprint.collective) {
    case shm::Collective::allreduce:
      return of_allreduce(posted, regime, rank, ranks);
    case shm::Collective::broadcast: {
      const bool receives = static_cast<std::size_t>(posted.fingerprint.root) != rank;
      return {.loaded_bytes = receives ? posted.output.bytes() : 0};
    }
    case shm::Collective::allgather:
      return of_allgather(posted, rank, ranks);
    case shm::Collective::barrier:
    case shm::Collective::reduce_scatter:
    case shm::Collective::reduce:
    case shm::Collective::alltoall:
      return {};  // not yet inside a node
  }
  return {};
}

}  // namespace rondo::transport
