#pragma once

#include <string_view>

namespace rondo::train {

/// Does all of `name` match `pattern`, where * stands for any characters, also none, and ? for any
/// one?
[[nodiscard]] bool matches(std::string_view pattern, std::string_view name);

}  // namespace rondo::train
