#pragma once

// Arrays of numbers, and the way from whole ones to the boxes that ranks hold, and back.

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <memory_resource>
#include <span>
#include <vector>

#include <gtest/gtest.h>

#include <rondo/tensor/tensor.hpp>
#include <rondo/train/layer_kernel.hpp>
#include <rondo/train/partition.hpp>

namespace rondo::train::test {

/// The numbers in arrays. Whole ones are small: sums of their products are exact in fp32.
enum class Numbers : std::uint8_t { whole, real };

/// Element i of stream `seed`: one of -3 ... 3, or in [-1, 1).
inline float number(Numbers numbers, std::uint64_t seed, std::size_t i) {
  std::uint64_t z = seed * 0x9e3779b97f4a7c15U + i * 0xbf58476d1ce4e5b9U + 1;
  z = (z ^ (z >> 30U)) * 0xbf58476d1ce4e5b9U;
  z = (z ^ (z >> 27U)) * 0x94d049bb133111ebU;
  z ^= z >> 31U;
  if (numbers == Numbers::whole) return static_cast<float>(z % 7) - 3.0F;
  return static_cast<float>(z >> 40U) * 0x1p-23F - 1.0F;
}

inline void fill(std::span<float> values, Numbers numbers, std::uint64_t seed) {
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = number(numbers, seed, i);
}

inline tensor::Tensor filled(tensor::Shape shape, Numbers numbers, std::uint64_t seed) {
  tensor::Tensor made(shape);
  fill(made.span(), numbers, seed);
  return made;
}

/// Calls visit(index in the whole array, index in the box) for every element of `box`.
template <class Visit>
void for_each_pair_of_elements(const tensor::Shape& whole, const Box& box, Visit visit) {
  std::size_t in_box = 0;
  for (auto n = box.n.first; n < box.n.last; ++n) {
    for (auto h = box.h.first; h < box.h.last; ++h) {
      for (auto w = box.w.first; w < box.w.last; ++w) {
        for (auto c = box.c.first; c < box.c.last; ++c) {
          visit(static_cast<std::size_t>(((n * whole.h + h) * whole.w + w) * whole.c + c),
                in_box++);
        }
      }
    }
  }
}

/// The part of `whole` that a rank with box `box` holds.
inline tensor::Tensor part_of(
    const tensor::Tensor& whole, const Box& box,
    std::pmr::memory_resource* memory = std::pmr::get_default_resource()) {
  tensor::Tensor part(box.shape(), memory);
  for_each_pair_of_elements(whole.shape(), box, [&](std::size_t from, std::size_t into) {
    part.span()[into] = whole.span()[from];
  });
  return part;
}

/// The way back. Ranks may do so at once where their boxes are apart.
inline void put_part(std::span<const float> part, const Box& box, tensor::Tensor& whole) {
  for_each_pair_of_elements(whole.shape(), box, [&](std::size_t into, std::size_t from) {
    whole.span()[into] = part[from];
  });
}

/// For a kernel to write. A view of no elements has an address, too, which says that it is wanted.
inline tensor::View<float> wanted(tensor::Tensor& values) {
  static float nowhere = 0.0F;
  return {values.data() != nullptr ? values.data() : &nowhere, values.shape()};
}

/// The operands of backward, for anything with arrays of these names.
template <class Arrays>
BackwardOperands operands_of(Arrays& arrays) {
  return {.x = arrays.x.view(),
          .y = arrays.y.view(),
          .dy = arrays.dy.view(),
          .dx = wanted(arrays.dx),
          .parameters = arrays.parameters,
          .gradients = arrays.gradients};
}

/// Equal bits where numbers are whole, else ||a - b|| / ||b|| <= 1e-5 (1e-5 where b is zero).
inline testing::AssertionResult agree(std::span<const float> a, std::span<const float> b,
                                      Numbers numbers) {
  if (a.size() != b.size()) {
    return testing::AssertionFailure() << a.size() << " elements, not " << b.size();
  }
  double difference = 0.0;
  double norm = 0.0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (numbers == Numbers::whole && a[i] != b[i]) {
      return testing::AssertionFailure()
             << "element " << i << " of " << a.size() << " is " << a[i] << ", not " << b[i];
    }
    const double apart = static_cast<double>(a[i]) - static_cast<double>(b[i]);
    difference += apart * apart;
    norm += static_cast<double>(b[i]) * static_cast<double>(b[i]);
  }
  constexpr double tolerance = 1e-5;
  const double scale = norm > 0.0 ? std::sqrt(norm) : 1.0;
  if (std::sqrt(difference) <= tolerance * scale) return testing::AssertionSuccess();
  return testing::AssertionFailure() << "off by " << std::sqrt(difference) / scale;
}

}  // namespace rondo::train::test
