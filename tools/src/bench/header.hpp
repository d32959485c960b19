#pragma once

#include <string>

#include "bench/bench.hpp"

namespace rondo::tools {

/// Writes to stderr what the numbers were measured with: versions, ranks and nodes, the link of
/// each level, how ranks wait, and where rank 0 is bound. Lines begin with "#".
void print_header(const transport::World& world, const Bench& bench, const std::string& wait,
                  int threads);

}  // namespace rondo::tools
