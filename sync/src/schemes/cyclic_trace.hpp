#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include <rondo/sync/cyclic.hpp>

namespace rondo::sync {

/// One worker's part of a scripted trace, entry by entry.
class Script {
 public:
  /// Throws std::invalid_argument when an entry does not make sense.
  Script(std::span<const Turn> trace, int worker, int workers);

  /// What comes next for this worker; null when nothing is scripted any more.
  [[nodiscard]] const Turn* next() const noexcept {
    return position_ < mine_.size() ? &mine_[position_] : nullptr;
  }
  /// What came. Throws std::runtime_error when it is not what is scripted.
  void follow(const Turn& turn);

  [[nodiscard]] std::size_t position() const noexcept { return position_; }
  /// For a restored run; behind the end when it had no script, or a longer one.
  void set_position(std::size_t position) noexcept { position_ = position; }

 private:
  std::vector<Turn> mine_;
  std::size_t position_ = 0;
};

}  // namespace rondo::sync
