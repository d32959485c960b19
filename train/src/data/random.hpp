#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

namespace rondo::train {

// The purpose of a random number: numbers of different purposes are independent. The values are
// part of what a seed means; new purposes go to the end.
enum class Purpose : std::uint32_t {
  order,
  crop,
  flip,
  pattern,
  placement,
  noise,
  worker,
  dropout
};

// Four random words for one (seed, epoch, item, purpose), whoever asks and in whatever order.
[[nodiscard]] std::array<std::uint32_t, 4> draw(std::uint64_t seed, std::uint32_t epoch,
                                                std::uint64_t item, Purpose purpose);

// The stream of an augmentation: of "crop" and "flip" their purpose, of others one apart from all
// purposes.
[[nodiscard]] std::uint32_t stream_of(std::string_view augmentation);

// A seed for what the layer of that name draws, from the run's.
[[nodiscard]] std::uint64_t layer_seed(std::uint64_t seed, std::string_view layer);

// The order in which an epoch visits the samples: a permutation that depends on (seed, epoch) and
// the number of samples alone.
class EpochOrder {
 public:
  EpochOrder(std::int64_t samples, std::uint64_t seed);

  // Makes the order that of `epoch`. Takes a millisecond for 60,000 samples, nothing when it is
  // that already; allocates nothing.
  void begin(std::int64_t epoch);

  // Which sample is number `index` of the epoch.
  [[nodiscard]] std::int64_t operator[](std::int64_t index) const {
    return order_[static_cast<std::size_t>(index)];
  }

 private:
  std::vector<std::int32_t> order_;
  std::uint64_t seed_;
  std::int64_t epoch_ = -1;
};

}  // namespace rondo::train
