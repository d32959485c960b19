#pragma once

#include <string>

namespace rondo::tools {

/// The path of this process' own program. Throws std::system_error.
[[nodiscard]] std::string own_path();

}  // namespace rondo::tools
