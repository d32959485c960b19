#pragma once

#include <cstdint>
#include <vector>

#include "bench/operation.hpp"
#include "bench/starting_line.hpp"

namespace rondo::transport {
class World;
}

namespace rondo::tools {

/// What a rank does with its buffers between two calls.
enum class BufferUse {
  untouched,
  rewritten,  ///< before each timed region, as backward does
  read_back,  ///< rewritten before, and the result read in the timed region, as an optimizer does
};

/// Takes measurements. All ranks call the same.
class Sampler {
 public:
  Sampler(transport::World& world, StartingLine& line) : world_(world), line_(line) {}

  /// Appends the time of each iteration in microseconds, of one call, that of the slowest rank.
  /// Ranks meet at the starting line before each timed region.
  void sample(BenchOperation& operation, int iterations, int warm_up, BufferUse use,
              std::vector<double>& times);

  /// Runs it once on buffers that were wrong before; the wrong elements of all ranks.
  [[nodiscard]] std::int64_t check(BenchOperation& operation);

 private:
  transport::World& world_;
  StartingLine& line_;
  std::vector<double> own_ = {};
};

}  // namespace rondo::tools
