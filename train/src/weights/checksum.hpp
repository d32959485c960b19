#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

struct XXH3_state_s;

namespace rondo::train {

// XXH3-128 of bytes, as 32 hexadecimal digits. 128 bits, so that two different parts of a run
// cannot meet by chance: parts with equal checksums are stored once.
[[nodiscard]] std::string checksum_of(std::span<const std::byte> bytes);

inline constexpr std::size_t checksum_digits = 32;

// The same of several arrays one after the other, as they lie in memory.
[[nodiscard]] std::string hash_of(const std::vector<std::span<const float>>& arrays);

// The same of bytes that come in pieces.
class Checksum {
 public:
  Checksum();

  void add(std::span<const std::byte> piece);
  [[nodiscard]] std::string text() const;

 private:
  struct Free {
    void operator()(XXH3_state_s* state) const noexcept;
  };
  std::unique_ptr<XXH3_state_s, Free> state_;
};

}  // namespace rondo::train
