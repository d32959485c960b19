#pragma once

#include <cstddef>
#include <memory>

#include "bench/operation.hpp"
#include "bench/shared_block.hpp"

namespace rondo::tools {

/// What an allreduce of `count` floats inside a node costs at the least: a barrier, one pass of
/// loads and stores over the buffers of `shared`, and another barrier.
[[nodiscard]] std::unique_ptr<BenchOperation> make_one_pass(SharedBlock& shared,
                                                            const BenchSetting& setting);

}  // namespace rondo::tools
