#pragma once

#include <cstdint>
#include <random>
#include <span>
#include <vector>

#include <rondo/tensor/tensor.hpp>

namespace rondo::tensor::test {

/// Fills with small whole numbers: sums of their products are exact in any order.
inline void fill_whole(std::span<float> values, unsigned seed, int largest = 3) {
  std::mt19937 random(seed);
  std::uniform_int_distribution<int> draw(-largest, largest);
  for (float& value : values) value = static_cast<float>(draw(random));
}

/// Fills with normally distributed values.
inline void fill_normal(std::span<float> values, unsigned seed, float mean = 0.0F,
                        float deviation = 1.0F) {
  std::mt19937 random(seed);
  std::normal_distribution<float> draw(mean, deviation);
  for (float& value : values) value = draw(random);
}

inline Tensor whole_tensor(const Shape& shape, unsigned seed, int largest = 3) {
  Tensor tensor(shape);
  fill_whole(tensor.span(), seed, largest);
  return tensor;
}

inline Tensor normal_tensor(const Shape& shape, unsigned seed, float mean = 0.0F,
                            float deviation = 1.0F) {
  Tensor tensor(shape);
  fill_normal(tensor.span(), seed, mean, deviation);
  return tensor;
}

inline std::vector<float> whole_values(std::int64_t count, unsigned seed, int largest = 3) {
  std::vector<float> values(static_cast<std::size_t>(count));
  fill_whole(values, seed, largest);
  return values;
}

inline std::vector<float> normal_values(std::int64_t count, unsigned seed, float mean = 0.0F,
                                        float deviation = 1.0F) {
  std::vector<float> values(static_cast<std::size_t>(count));
  fill_normal(values, seed, mean, deviation);
  return values;
}

/// A copy of a tensor whose images lie `gap` elements apart; the gaps hold `filler`.
class Strided {
 public:
  static constexpr float filler = -77.0F;

  Strided(const Tensor& from, std::int64_t gap)
      : shape_(from.shape()),
        stride_(shape_.image() + gap),
        memory_(static_cast<std::size_t>(shape_.n * stride_), filler) {
    for (std::int64_t n = 0; n < shape_.n; ++n) {
      for (std::int64_t i = 0; i < shape_.image(); ++i) {
        view().image(n)[i] = from.view().image(n)[i];
      }
    }
  }
  [[nodiscard]] View<float> view() { return {memory_.data(), shape_, stride_}; }

  [[nodiscard]] Tensor dense() {
    Tensor tensor(shape_);
    for (std::int64_t n = 0; n < shape_.n; ++n) {
      for (std::int64_t i = 0; i < shape_.image(); ++i) {
        tensor.view().image(n)[i] = view().image(n)[i];
      }
    }
    return tensor;
  }

  /// Has nobody written between the images?
  [[nodiscard]] bool gaps_are_untouched() {
    for (std::int64_t n = 0; n < shape_.n; ++n) {
      for (std::int64_t i = shape_.image(); i < stride_; ++i) {
        if (view().image(n)[i] != filler) return false;
      }
    }
    return true;
  }

 private:
  Shape shape_;
  std::int64_t stride_;
  std::vector<float> memory_;
};

}  // namespace rondo::tensor::test
