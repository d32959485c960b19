#include "trainer/replica_check.hpp"

#include <algorithm>
#include <span>
#include <string>
#include <vector>

#include <rondo/train/trainer.hpp>
#include <rondo/transport/communicator.hpp>

namespace rondo::train {

void check_replicas(transport::Communicator& replicas, int rank, const ParameterHash& mine,
                    std::int64_t epoch) {
  const auto ranks = static_cast<std::size_t>(replicas.size());
  std::vector<std::uint8_t> all(ranks * mine.size());
  replicas.allgather(std::span<const std::uint8_t>(mine), std::span(all)).wait();
  std::vector<std::int64_t> names(ranks);
  const std::int64_t own_name = rank;
  replicas.allgather(std::span(&own_name, 1), std::span(names)).wait();

  std::string differing;
  const auto first = std::span(all).first(mine.size());
  for (std::size_t i = 1; i < ranks; ++i) {
    if (std::ranges::equal(first, std::span(all).subspan(i * mine.size(), mine.size()))) continue;
    differing += (differing.empty() ? "" : ", ") + std::to_string(names[i]);
  }
  if (differing.empty()) return;
  throw NumericError("after epoch " + std::to_string(epoch) +
                     " the ranks do not hold the same parameters: rank(s) " + differing +
                     " differ from rank " + std::to_string(names[0]) +
                     "; run all ranks with the same build, threads and data");
}

}  // namespace rondo::train
