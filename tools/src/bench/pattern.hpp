#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include <rondo/transport/element.hpp>

namespace rondo::tools {

/// `value` as an element; exact from 0 to 256 in every type but u8, which ends at 255.
template <transport::Element T>
[[nodiscard]] T element_of(int value) noexcept {
  if constexpr (std::same_as<T, transport::Bfloat16>) {
    return {
        static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(static_cast<float>(value)) >> 16U)};
  } else {
    return static_cast<T>(value);
  }
}

/// Integers that repeat with a prime period, so that data which lands a power of two from
/// where it belongs is seen to be wrong, and which are exact in every type and in every order of
/// summation.
template <transport::Element T>
class Pattern {
 public:
  static constexpr std::size_t period = 251;

  /// What `rank` gives to an operation that moves data: different from what other ranks give.
  [[nodiscard]] static Pattern moved(int rank) {
    return Pattern([rank](int i) { return (i + 31 * rank) % static_cast<int>(period); });
  }

  /// What `rank` gives to a reduction: so little that a bf16 holds the sum.
  [[nodiscard]] static Pattern given(int rank) {
    return Pattern([rank](int i) { return contribution(rank, i); });
  }

  /// What reducing given() of `ranks` comes to.
  [[nodiscard]] static Pattern reduced(const std::vector<int>& ranks, transport::ReduceOp op) {
    return Pattern([&](int i) {
      int result = contribution(ranks.front(), i);
      for (std::size_t k = 1; k < ranks.size(); ++k) {
        const int next = contribution(ranks[k], i);
        if (op == transport::ReduceOp::sum) result += next;
        if (op == transport::ReduceOp::min) result = std::min(result, next);
        if (op == transport::ReduceOp::max) result = std::max(result, next);
      }
      return result;
    });
  }

  /// Writes elements [offset, offset + data.size()) of the pattern.
  void fill(std::span<T> data, std::size_t offset = 0) const noexcept {
    for (std::size_t done = 0; done < data.size();) {
      const std::span<const T> part = part_at(offset + done, data.size() - done);
      std::memcpy(data.data() + done, part.data(), part.size_bytes());
      done += part.size();
    }
  }

  /// How many of `data` differ from elements [offset, offset + data.size()), bit for bit.
  [[nodiscard]] std::int64_t count_wrong(std::span<const T> data,
                                         std::size_t offset = 0) const noexcept {
    std::int64_t wrong = 0;
    for (std::size_t done = 0; done < data.size();) {
      const std::span<const T> part = part_at(offset + done, data.size() - done);
      const T* found = data.data() + done;
      if (std::memcmp(found, part.data(), part.size_bytes()) != 0) {
        for (std::size_t i = 0; i < part.size(); ++i) {
          if (std::memcmp(found + i, &part[i], sizeof(T)) != 0) ++wrong;
        }
      }
      done += part.size();
    }
    return wrong;
  }

 private:
  static constexpr int contributing_ranks = 64;

  template <typename Value>
  explicit Pattern(Value value) {
    for (std::size_t i = 0; i < period; ++i) values_[i] = element_of<T>(value(static_cast<int>(i)));
  }

  // At most 3 * 64 in total, below what u8 and bf16 can hold.
  [[nodiscard]] static int contribution(int rank, int i) {
    return rank < contributing_ranks ? (i + i / 7 + rank) & 3 : 0;
  }

  [[nodiscard]] std::span<const T> part_at(std::size_t position, std::size_t most) const noexcept {
    const std::size_t begin = position % period;
    return {values_.data() + begin, std::min(most, period - begin)};
  }

  std::array<T, period> values_ = {};
};

/// Makes every element one that no Pattern has.
template <transport::Element T>
void spoil(std::span<T> data) noexcept {
  std::ranges::fill(data, element_of<T>(255));
}

/// Reads every byte of `data`; the result keeps the compiler from leaving it out.
template <transport::Element T>
[[nodiscard]] std::uint64_t read_all(std::span<const T> data) noexcept {
  std::uint64_t sum = 0;
  const auto* bytes = reinterpret_cast<const std::byte*>(data.data());
  std::size_t i = 0;
  for (; i + sizeof(std::uint64_t) <= data.size_bytes(); i += sizeof(std::uint64_t)) {
    std::uint64_t word = 0;
    std::memcpy(&word, bytes + i, sizeof word);
    sum += word;
  }
  for (; i < data.size_bytes(); ++i) sum += static_cast<std::uint64_t>(bytes[i]);
  return sum;
}

}  // namespace rondo::tools
