// One range of the array at a time, cut into a part for each thread where it is long.

#include <rondo/sync/optimizer.hpp>

#include <algorithm>

#include "flat/flat.hpp"

namespace rondo::sync {

GradientSum::GradientSum(std::size_t size, transport::Team* team, std::pmr::memory_resource* memory)
    : sum_(size, 0.0F, memory), team_(team) {}

template <typename Pass>
void GradientSum::for_each_part(std::size_t offset, std::size_t size, Pass pass) {
  flat::check_range("gradient sum", offset, size, sum_.size());
  const auto sum = std::span(sum_).subspan(offset, size);
  flat::for_each_part(team_, size, [&](std::size_t first, std::size_t count) {
    pass(sum.subspan(first, count), first, count);
  });
}

void GradientSum::add(std::size_t offset, std::span<const float> gradients, float factor) {
  for_each_part(offset, gradients.size(), [&](auto sum, std::size_t first, std::size_t count) {
    flat::add_scaled(sum, factor, gradients.subspan(first, count));
  });
}

// A copy and not 0 + g: that would lose the sign of -0.
void GradientSum::set(std::size_t offset, std::span<const float> gradients, float factor) {
  for_each_part(offset, gradients.size(), [&](auto sum, std::size_t first, std::size_t count) {
    flat::scale(sum, factor, gradients.subspan(first, count));
  });
}

void GradientSum::move_to(std::size_t offset, std::span<float> gradients) {
  for_each_part(offset, gradients.size(), [&](auto sum, std::size_t first, std::size_t count) {
    flat::add(gradients.subspan(first, count), sum);
    std::ranges::fill(sum, 0.0F);
  });
}

}  // namespace rondo::sync
