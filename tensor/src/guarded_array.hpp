#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include <rondo/tensor/tensor.hpp>

/// Arrays for the tests of oneDNN's kernels. All of them repeat one short pattern of whole numbers,
/// so an element's value follows from its index.
namespace rondo::tensor::onednn {

/// A prime, so that neighbours in any dimension differ.
inline constexpr std::int64_t pattern_period = 4099;

/// -1, 0 or 1: a sum of 16 million products is exact in fp32.
[[nodiscard]] inline float value_at(std::int64_t index) noexcept {
  const auto mixed = static_cast<std::uint32_t>(index % pattern_period) * 2654435761U;
  return static_cast<float>((mixed >> 16U) % 3U) - 1.0F;
}

/// 0 to 250, which bf16 holds exactly.
[[nodiscard]] inline float varied_value_at(std::int64_t index) noexcept {
  const auto mixed = static_cast<std::uint32_t>(index % pattern_period) * 2654435761U;
  return static_cast<float>((mixed >> 16U) % 251U);
}

/// Memory with a margin on both sides, which is not to be written.
class GuardedArray {
 public:
  explicit GuardedArray(std::size_t bytes) : size_(bytes), bytes_(bytes + 2 * margin, mark) {
    // As floats and as bf16 this is NaN.
    std::fill_n(bytes_.begin() + margin, bytes, std::byte{0xff});
  }
  [[nodiscard]] void* data() noexcept { return bytes_.data() + margin; }
  [[nodiscard]] bool is_whole() const noexcept {
    const auto is_mark = [](std::byte byte) { return byte == mark; };
    return std::all_of(bytes_.begin(), bytes_.begin() + margin, is_mark) &&
           std::all_of(bytes_.end() - margin, bytes_.end(), is_mark);
  }
  void fill(DataType type, float (*value)(std::int64_t)) {
    with_type(type, [&]<typename T>(T) {
      std::array<T, pattern_period> pattern;
      for (std::int64_t i = 0; i < pattern_period; ++i) {
        pattern[static_cast<std::size_t>(i)] = from_float<T>(value(i));
      }
      auto* const into = static_cast<std::byte*>(data());
      for (std::size_t at = 0; at < size_; at += sizeof(pattern)) {
        std::memcpy(into + at, pattern.data(), std::min(sizeof(pattern), size_ - at));
      }
    });
  }
  [[nodiscard]] float at(DataType type, std::int64_t index) noexcept {
    if (type == DataType::bf16) return to_float(static_cast<const Bfloat16*>(data())[index]);
    return static_cast<const float*>(data())[index];
  }

 private:
  // Strided weight gradients of one pixel were seen to write this far away.
  static constexpr std::ptrdiff_t margin = 128 * 1024;
  static constexpr std::byte mark{0xa5};

  std::size_t size_;
  std::vector<std::byte> bytes_;
};

/// Where a result is compared: everywhere if it is small, otherwise the first and the last
/// elements, where corners and borders lie, and others between.
[[nodiscard]] inline std::vector<std::int64_t> compared_elements(std::int64_t size,
                                                                 std::int64_t row) {
  constexpr std::int64_t most = 768;
  std::vector<std::int64_t> chosen;
  if (size <= most) {
    for (std::int64_t i = 0; i < size; ++i) chosen.push_back(i);
    return chosen;
  }
  for (std::int64_t i = 0; i < most / 3; ++i) {
    chosen.push_back(i % 2 == 0 ? i : size - 1 - i);  // the first and the last image, or filter
    chosen.push_back(i * 7919 % (size / row) * row + row - 1 -
                     i % std::min<std::int64_t>(row, 3));  // ends of rows
    chosen.push_back(i * 104729 % size);
  }
  return chosen;
}

}  // namespace rondo::tensor::onednn
