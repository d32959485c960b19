#include "optimizer/sgd_kernel.hpp"
#include "optimizer/sgd_loop.hpp"

namespace rondo::sync {

void update_sgd_baseline(float* parameters, float* velocity, const float* gradients,
                         std::size_t size, const SgdFactors& factors) {
  sgd_loop(parameters, velocity, gradients, size, factors);
}

}  // namespace rondo::sync
