#pragma once

#include <cstddef>
#include <string_view>

namespace rondo::sync::flat {

/// Throws std::invalid_argument, beginning with `name`, unless `count` elements from `offset` on
/// lie within an array of `size`.
void check_range(std::string_view name, std::size_t offset, std::size_t count, std::size_t size);

}  // namespace rondo::sync::flat
