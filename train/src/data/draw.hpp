#pragma once

#include <array>
#include <cstdint>

#include <Random123/philox.h>

namespace rondo::train {

// What a random number is for: numbers of different purposes are independent. The values are part
// of what a seed means; new purposes go to the end.
enum class Purpose : std::uint32_t { order, crop, flip, pattern, placement, noise, worker };

// Four random words for one (seed, epoch, item, purpose), whoever asks and in whatever order.
inline std::array<std::uint32_t, 4> draw(std::uint64_t seed, std::uint32_t epoch,
                                         std::uint64_t item, Purpose purpose) {
  const r123::Philox4x32::key_type key = {
      {static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32)}};
  const r123::Philox4x32::ctr_type counter = {{static_cast<std::uint32_t>(item),
                                               static_cast<std::uint32_t>(item >> 32), epoch,
                                               static_cast<std::uint32_t>(purpose)}};
  const r123::Philox4x32::ctr_type words = r123::Philox4x32{}(counter, key);
  return {words[0], words[1], words[2], words[3]};
}

}  // namespace rondo::train
