// Random numbers without a state that would have to be shared or saved: a counter-based generator
// (Philox 4x32, Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011) gives the same
// numbers for the same key on every rank.

#include "data/random.hpp"

#include <cstddef>
#include <limits>
#include <numeric>
#include <stdexcept>
#include <utility>

#include <Random123/philox.h>
#include <xxhash.h>

#include <rondo/train/loader.hpp>

namespace rondo::train {
namespace {

// Below it are the values of Purpose.
constexpr std::uint32_t first_user_stream = 1U << 31;

std::array<std::uint32_t, 4> philox(std::uint64_t seed, std::uint32_t epoch, std::uint64_t item,
                                    std::uint32_t stream) {
  const r123::Philox4x32::key_type key = {
      {static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32)}};
  const r123::Philox4x32::ctr_type counter = {
      {static_cast<std::uint32_t>(item), static_cast<std::uint32_t>(item >> 32), epoch, stream}};
  const r123::Philox4x32::ctr_type words = r123::Philox4x32{}(counter, key);
  return {words[0], words[1], words[2], words[3]};
}

}  // namespace

std::array<std::uint32_t, 4> draw(std::uint64_t seed, std::uint32_t epoch, std::uint64_t item,
                                  Purpose purpose) {
  return philox(seed, epoch, item, static_cast<std::uint32_t>(purpose));
}

std::uint32_t stream_of(std::string_view augmentation) {
  if (augmentation == "crop") return static_cast<std::uint32_t>(Purpose::crop);
  if (augmentation == "flip") return static_cast<std::uint32_t>(Purpose::flip);
  return first_user_stream | XXH32(augmentation.data(), augmentation.size(), 0);
}

std::uint64_t layer_seed(std::uint64_t seed, std::string_view layer) {
  return XXH64(layer.data(), layer.size(), seed);
}

SampleRandom::SampleRandom(std::uint64_t seed, std::int64_t epoch, std::int64_t sample,
                           std::uint32_t stream)
    : seed_(seed),
      epoch_(static_cast<std::uint32_t>(epoch)),
      sample_(static_cast<std::uint64_t>(sample)),
      stream_(stream) {}

// Four words are drawn at once. Samples have numbers below 2^31, so that the upper half of the item
// counts the draws.
std::uint32_t SampleRandom::next() {
  const std::uint32_t word = drawn_ % 4;
  if (word == 0) {
    words_ = philox(seed_, epoch_, std::uint64_t{drawn_ / 4} << 32 | sample_, stream_);
  }
  ++drawn_;
  return words_[word];
}

EpochOrder::EpochOrder(std::int64_t samples, std::uint64_t seed) : seed_(seed) {
  if (samples < 0 || samples > std::numeric_limits<std::int32_t>::max()) {
    throw std::invalid_argument("an epoch cannot have so many samples");
  }
  order_.resize(static_cast<std::size_t>(samples));
}

// The shuffle of Fisher and Yates: entry i - 1 is exchanged with one of the entries up to it. Each
// block of random words serves two entries; 64 bits make the modulo's bias negligible.
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
