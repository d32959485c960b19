#pragma once

#include <cstddef>
#include <span>

namespace rondo::sync::flat {

// Passes over flat arrays, which every scheme is made of. All arrays of a call are as long as each
// other, and the same or apart. Element by element without contraction of products and sums: the
// bits depend on no cut. Sums are taken in double over 16 lanes in a fixed order.

/// into = into + from.
void add(std::span<float> into, std::span<const float> from);

/// into = into + factor * from.
void add_scaled(std::span<float> into, float factor, std::span<const float> from);

/// out = a - b.
void subtract(std::span<float> out, std::span<const float> a, std::span<const float> b);

/// out = a + factor * b.
void sum_scaled(std::span<float> out, std::span<const float> a, float factor,
                std::span<const float> b);

/// values = factor * values.
void scale(std::span<float> values, float factor);

/// out = factor * from.
void scale(std::span<float> out, float factor, std::span<const float> from);

/// The scalar product.
[[nodiscard]] double dot(std::span<const float> a, std::span<const float> b);

}  // namespace rondo::sync::flat
