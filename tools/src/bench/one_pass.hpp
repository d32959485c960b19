#pragma once

#include <cstddef>
#include <string>

namespace rondo::tools {

/// Adds elements [first, last) of all ranks' buffers and stores the sums into all of them: what
/// an allreduce inside a node costs at the least.
using OnePass = void (*)(float* const* buffers, int ranks, std::size_t first, std::size_t last);

/// The variant for the widest vectors that this processor has.
[[nodiscard]] OnePass one_pass_for_this_processor();

}  // namespace rondo::tools
