#include "trainer/replica_check.hpp"

#include <algorithm>
#include <span>
#include <string>
#include <vector>

#include <rondo/train/trainer.hpp>
#include <rondo/transport/communicator.hpp>
#include <rondo/transport/world.hpp>

namespace rondo::train {

void check_replicas(transport::World& world, const ParameterHash& mine, std::int64_t epoch) {
  const auto ranks = static_cast<std::size_t>(world.size());
  std::vector<std::uint8_t> all(ranks * mine.size());
  world.communicator().allgather(std::span<const std::uint8_t>(mine), std::span(all)).wait();

  std::string differing;
  const auto first = std::span(all).first(mine.size());
  for (std::size_t rank = 1; rank < ranks; ++rank) {
    if (std::ranges::equal(first, std::span(all).subspan(rank * mine.size(), mine.size())))
      continue;
    differing += (differing.empty() ? "" : ", ") + std::to_string(rank);
  }
  if (differing.empty()) return;
  throw NumericError("after epoch " + std::to_string(epoch) +
                     " the ranks do not hold the same parameters: rank(s) " + differing +
                     " differ from rank 0; run all ranks with the same build, threads and data");
}

}  // namespace rondo::train
