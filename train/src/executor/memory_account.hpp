#pragma once

#include <cstddef>
#include <string>
#include <utility>

namespace rondo::train {

/// How much memory a rank's arrays take, and the most that they may take together. Belongs to one
/// thread at a time.
class MemoryAccount {
 public:
  /// `limit` in bytes; 0: none.
  explicit MemoryAccount(std::size_t limit = 0) : limit_(limit) {}

  /// Throws ConfigError, and takes nothing, where the limit would be exceeded: it names what the
  /// bytes are for, and says how to need fewer.
  void take(std::size_t bytes);
  void give_back(std::size_t bytes) noexcept { in_use_ -= bytes; }

  /// For messages, what the next bytes are for; returns what they were for until now.
  std::string set_purpose(std::string purpose) {
    return std::exchange(purpose_, std::move(purpose));
  }

  [[nodiscard]] std::size_t in_use() const noexcept { return in_use_; }
  /// The most that was in use at once.
  [[nodiscard]] std::size_t peak() const noexcept { return peak_; }

 private:
  std::size_t limit_;
  std::size_t in_use_ = 0;
  std::size_t peak_ = 0;
  std::string purpose_ = "an array";
};

}  // namespace rondo::train
