#include "optimizer/decay_ranges.hpp"

#include <stdexcept>
#include <string>
#include <utility>

namespace rondo::sync {

DecayRanges::DecayRanges(std::string_view name, std::vector<ElementRange> undecayed,
                         std::size_t size)
    : undecayed_(std::move(undecayed)) {
  std::erase_if(undecayed_, [](const ElementRange& range) { return range.size == 0; });
  std::size_t end = 0;
  for (const ElementRange& range : undecayed_) {
    if (range.offset < end || range.offset > size || range.size > size - range.offset) {
      throw std::invalid_argument(
          std::string(name) + ": undecayed names " + std::to_string(range.size) +
          " elements from " + std::to_string(range.offset) +
          " on, which are out of order or not among the " + std::to_string(size) + " parameters");
    }
    end = range.offset + range.size;
  }
}

}  // namespace rondo::sync
