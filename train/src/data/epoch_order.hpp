#pragma once

#include <cstdint>
#include <vector>

namespace rondo::train {

// The order in which an epoch visits the samples: a permutation that depends on (seed, epoch) and
// the number of samples alone.
class EpochOrder {
 public:
  EpochOrder(std::int64_t samples, std::uint64_t seed);

  // Makes the order that of `epoch`. Takes a millisecond for 60,000 samples, nothing when it is
  // that already; allocates nothing.
  void begin(std::int64_t epoch);

  // Which sample comes at `place`.
  [[nodiscard]] std::int64_t operator[](std::int64_t place) const {
    return order_[static_cast<std::size_t>(place)];
  }

 private:
  std::vector<std::int32_t> order_;
  std::uint64_t seed_;
  std::int64_t epoch_ = -1;
};

}  // namespace rondo::train
