#pragma once

#include <cstdint>

namespace rondo::train {

/// Samples [first, last) of a batch.
struct Share {
  std::int64_t first = 0;
  std::int64_t last = 0;

  [[nodiscard]] constexpr std::int64_t size() const noexcept { return last - first; }
};

/// What rank `rank` of `ranks` takes of `samples`: shares are adjacent, in rank order, and differ
/// by at most one sample; some are empty when there are fewer samples than ranks.
[[nodiscard]] constexpr Share share_of(std::int64_t samples, int rank, int ranks) noexcept {
  return {samples * rank / ranks, samples * (rank + 1) / ranks};
}

}  // namespace rondo::train
