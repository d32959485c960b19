// The table of algorithms, shown to who plans and does not run: the same table and the same choice
// as in a World, so that a prediction changes from doubling to rings where a run does.

#include <rondo/transport/allreduce_paths.hpp>

#include "collective/algorithms.hpp"

namespace rondo::transport {

AllreducePaths::AllreducePaths(const std::string& table)
    : given_(table.empty() ? nullptr
                           : std::make_shared<const AlgorithmTable>(AlgorithmTable::parse(table))) {
}

AllreducePath AllreducePaths::of(std::size_t ends, std::size_t bytes) const noexcept {
  const AlgorithmTable table = given_ ? *given_ : AlgorithmTable::for_ranks(ends);
  return {.doubling = table.pick(bytes) == AllreduceAlgorithm::doubling,
          .flat = table.is_flat(bytes)};
}

}  // namespace rondo::transport
