#pragma once

#include <cstdint>

#include <rondo/tensor/engine.hpp>
#include <rondo/tensor/export.hpp>

namespace rondo::tensor {

/// A function of [first, last), and what it is called with.
using ShareFunction = void (*)(const void* use, std::int64_t first, std::int64_t last);

/// See for_each_share().
RONDO_TENSOR_API void run_shares(Engine& engine, std::int64_t count, ShareFunction run,
                                 const void* use);

/// Calls use(first, last) for parts that together are [0, count), each on a thread of the engine's
/// team: for kernels of one's own. Cuts depend on `count` and the number of threads alone; empty
/// parts are left out. `use` must not throw. Allocates nothing.
template <typename Use>
void for_each_share(Engine& engine, std::int64_t count, const Use& use) {
  run_shares(
      engine, count,
      [](const void* with, std::int64_t first, std::int64_t last) {
        (*static_cast<const Use*>(with))(first, last);
      },
      &use);
}

}  // namespace rondo::tensor
