#pragma once

#include <cstddef>
#include <span>
#include <string_view>

#include <rondo/transport/element.hpp>
#include <rondo/transport/team.hpp>

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

/// out = from as bf16, to the nearest, of two equally near ones the even one. NaN stays NaN.
void round(std::span<transport::Bfloat16> out, std::span<const float> from);

/// out = from, exactly.
void widen(std::span<float> out, std::span<const transport::Bfloat16> from);

/// The scalar product.
[[nodiscard]] double dot(std::span<const float> a, std::span<const float> b);

/// Throws std::invalid_argument, beginning with `name`, unless `count` elements from `offset` on
/// lie within an array of `size`.
void check_range(std::string_view name, std::size_t offset, std::size_t count, std::size_t size);

/// Below this, waking a team costs more than it saves.
inline constexpr std::size_t team_worthwhile = 64 * 1024;

/// Calls work(first, count) for adjacent parts of `size` elements: one part for each thread of
/// `team`, all at the same time; or a single one if there is no team or the array is short.
/// `work` does not throw.
template <typename Work>
void for_each_part(transport::Team* team, std::size_t size, const Work& work) {
  if (team == nullptr || size < team_worthwhile) {
    work(std::size_t{0}, size);
    return;
  }
  struct Shared {
    const Work& work;
    std::size_t size;
    std::size_t parts;
  };
  Shared shared{work, size, static_cast<std::size_t>(team->size())};
  team->run(
      [](void* context, int index) {
        const auto& all = *static_cast<const Shared*>(context);
        const auto part = static_cast<std::size_t>(index);
        const std::size_t first = all.size * part / all.parts;
        all.work(first, all.size * (part + 1) / all.parts - first);
      },
      &shared);
}

}  // namespace rondo::sync::flat
