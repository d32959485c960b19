#include "optimizer/adam_kernel.hpp"
#include "optimizer/adam_loop.hpp"

namespace rondo::sync {

void update_adam_baseline(const AdamArrays& arrays, std::size_t size, const AdamFactors& factors) {
  adam_loop(arrays, size, factors);
}

}  // namespace rondo::sync
