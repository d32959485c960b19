#pragma once

#include <cstddef>
#include <span>
#include <string_view>

namespace rondo::sync {

/// Throws std::invalid_argument, beginning with the optimizer's `name`, unless an update of
/// `parameters` by `gradients` at `offset` fits an array of `size`.
void check_update(std::string_view name, std::size_t offset, std::span<const float> parameters,
                  std::span<const float> gradients, std::size_t size);

}  // namespace rondo::sync
