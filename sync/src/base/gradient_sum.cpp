#include <rondo/sync/gradient_sum.hpp>

#include <algorithm>

#include "flat/flat.hpp"
#include "flat/parts.hpp"
#include "flat/range.hpp"

namespace rondo::sync {

GradientSum::GradientSum(std::size_t size, transport::Team* team) : sum_(size, 0.0F), team_(team) {}

void GradientSum::add(std::size_t offset, std::span<const float> gradients) {
  flat::check_range("gradient sum", offset, gradients.size(), sum_.size());
  const auto sum = std::span(sum_).subspan(offset, gradients.size());
  flat::for_each_part(team_, sum.size(), [&](std::size_t first, std::size_t count) {
    flat::add(sum.subspan(first, count), gradients.subspan(first, count));
  });
}

void GradientSum::move_to(std::size_t offset, std::span<float> gradients) {
  flat::check_range("gradient sum", offset, gradients.size(), sum_.size());
  const auto sum = std::span(sum_).subspan(offset, gradients.size());
  flat::for_each_part(team_, sum.size(), [&](std::size_t first, std::size_t count) {
    flat::add(gradients.subspan(first, count), sum.subspan(first, count));
    std::ranges::fill(sum.subspan(first, count), 0.0F);
  });
}

}  // namespace rondo::sync
