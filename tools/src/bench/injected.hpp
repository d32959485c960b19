#pragma once

#include <string>

namespace rondo::tools {

/// What RONDO_LATENCY_US and RONDO_BANDWIDTH_GBS inject into links, as in "2us+1GB/s"; empty when
/// they do not.
[[nodiscard]] std::string injected_delays();

}  // namespace rondo::tools
