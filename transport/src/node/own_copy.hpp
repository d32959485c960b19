#pragma once

#include <algorithm>
#include <cstddef>

#include "node/rows.hpp"

namespace rondo::transport {

/// Copies what an operation only moves from a rank to itself, a tile per step.
class OwnCopy {
 public:
  /// Copies some of `from`, which has as many rows and row bytes, into `into`. True if it did;
  /// false when all is there, or they are the same memory.
  bool step(const Block& into, const ConstBlock& from) noexcept {
    if (finished(into, from)) return false;
    const std::size_t bytes = std::min(tile, from.bytes() - copied_);
    copy_rows(into, from, copied_, bytes);
    copied_ += bytes;
    return true;
  }
  [[nodiscard]] bool finished(const Block& into, const ConstBlock& from) const noexcept {
    return copied_ == from.bytes() || into.data == from.data;
  }

 private:
  static constexpr std::size_t tile = std::size_t{256} << 10U;
  std::size_t copied_ = 0;
};

}  // namespace rondo::transport
