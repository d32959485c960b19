#pragma once

#include <algorithm>
#include <cstddef>
#include <string_view>
#include <vector>

#include <rondo/sync/optimizer.hpp>

namespace rondo::sync {

/// Which elements of a flat array of parameters have weight decay: all but those of some ranges.
class DecayRanges {
 public:
  /// `undecayed` is as SgdOptions says. Throws std::invalid_argument, beginning with the
  /// optimizer's `name`, unless the ranges are in ascending order, apart, and within `size`.
  DecayRanges(std::string_view name, std::vector<ElementRange> undecayed, std::size_t size);

  /// Cuts [offset, offset + count) where weight decay begins or ends, and calls
  /// work(first, count, decays) for each piece in turn, where `first` is relative to `offset`.
  template <typename Work>
  void for_each_piece(std::size_t offset, std::size_t count, const Work& work) const {
    const std::size_t end = offset + count;
    auto range = std::ranges::upper_bound(
        undecayed_, offset, {}, [](const ElementRange& each) { return each.offset + each.size; });
    for (std::size_t at = offset; at < end;) {
      const bool decays = range == undecayed_.end() || at < range->offset;
      const std::size_t begin_of_next = range == undecayed_.end() ? end : range->offset;
      const std::size_t last = std::min(end, decays ? begin_of_next : range->offset + range->size);
      work(at - offset, last - at, decays);
      if (!decays) ++range;
      at = last;
    }
  }

 private:
  std::vector<ElementRange> undecayed_;
};

}  // namespace rondo::sync
