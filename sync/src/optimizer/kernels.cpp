// The update kernels. Compiled once per instruction set, each time with its own flags and with its
// name as RONDO_SYNC_INSTRUCTION_SET: see meson.build.
//
// Divisions and square roots are rounded correctly by every instruction set, and products and sums
// are not contracted, so all agree bit for bit. Everything here has internal linkage, and nothing
// else comes from headers, std::sqrt included: a function shared with other translation units could
// be taken by the linker from the one with the widest instructions.

#include "optimizer/kernels.hpp"

namespace rondo::sync::RONDO_SYNC_INSTRUCTION_SET {
namespace {

// d = scale*g + lambda*w;  v = mu*v + d;  w = w - eta*v, or with Nesterov w = w - eta*(d + mu*v)
template <bool nesterov>
void update_sgd(const SgdArrays& arrays, std::size_t size, const SgdFactors& factors) {
  float* __restrict parameters = arrays.parameters;
  float* __restrict velocity = arrays.velocity;
  const float* __restrict gradients = arrays.gradients;
  const auto [scale, momentum, decay, rate] = factors;
  for (std::size_t i = 0; i < size; ++i) {
    const float gradient = scale * gradients[i] + decay * parameters[i];
    velocity[i] = momentum * velocity[i] + gradient;
    const float step = nesterov ? gradient + momentum * velocity[i] : velocity[i];
    parameters[i] = parameters[i] - rate * step;
  }
}

// As AdamOptions says, for Adam and AdamW in one: either `decay` is 0 or `shrink` is 1.
void update_adam(const AdamArrays& arrays, std::size_t size, const AdamFactors& factors) {
  float* __restrict parameters = arrays.parameters;
  float* __restrict m = arrays.m;
  float* __restrict v = arrays.v;
  const float* __restrict gradients = arrays.gradients;
  const auto [scale, decay, shrink, beta1, rest1, beta2, rest2, correction, epsilon, rate] =
      factors;
  for (std::size_t i = 0; i < size; ++i) {
    const float gradient = scale * gradients[i] + decay * parameters[i];
    m[i] = beta1 * m[i] + rest1 * gradient;
    v[i] = beta2 * v[i] + rest2 * (gradient * gradient);
    const float length = __builtin_sqrtf(v[i]) * correction + epsilon;
    parameters[i] = shrink * parameters[i] - rate * (m[i] / length);
  }
}

#define RONDO_TEXT(name) RONDO_TEXT_OF(name)
#define RONDO_TEXT_OF(name) #name

}  // namespace

const UpdateKernels update_kernels{RONDO_TEXT(RONDO_SYNC_INSTRUCTION_SET), update_sgd<false>,
                                   update_sgd<true>, update_adam};

}  // namespace rondo::sync::RONDO_SYNC_INSTRUCTION_SET
