#pragma once

#include <fmt/format.h>

#include <string>

namespace rondo::tools {

/// As the tables of `rondo plan` have them.
[[nodiscard]] inline std::string milliseconds(double seconds) {
  return fmt::format("{:.3f}", 1e3 * seconds);
}

}  // namespace rondo::tools
