#include "data/epoch_order.hpp"

#include <array>
#include <cstddef>
#include <limits>
#include <numeric>
#include <stdexcept>
#include <utility>

#include "data/draw.hpp"

namespace rondo::train {

EpochOrder::EpochOrder(std::int64_t samples, std::uint64_t seed) : seed_(seed) {
  if (samples < 0 || samples > std::numeric_limits<std::int32_t>::max()) {
    throw std::invalid_argument("an epoch cannot have so many samples");
  }
  order_.resize(static_cast<std::size_t>(samples));
}

// The shuffle of Fisher and Yates: place i - 1 is exchanged with one of the places up to it. Each
// block of random words serves two places; 64 bits make the modulo's bias negligible.
void EpochOrder::begin(std::int64_t epoch) {
  if (epoch == epoch_) return;
  epoch_ = epoch;
  std::iota(order_.begin(), order_.end(), 0);
  const auto key = static_cast<std::uint32_t>(epoch);
  for (std::size_t i = order_.size(); i > 1; --i) {
    const std::array<std::uint32_t, 4> words = draw(seed_, key, i / 2, Purpose::order);
    const std::size_t half = 2 * (i % 2);
    const std::uint64_t random = std::uint64_t{words[half]} << 32 | words[half + 1];
    std::swap(order_[i - 1], order_[static_cast<std::size_t>(random % i)]);
  }
}

}  // namespace rondo::train
