// The loops for any x86-64 CPU: vectors of 4 floats.
#define RONDO_VECTOR_FLOATS 4
#include "batch_norm.inc"
#include "elementwise.inc"
#include "variants.hpp"

namespace rondo::tensor {

const Kernels baseline_kernels = {
    .backward_relu = backward_relu,
    .add = add,
    .sum_moments = sum_moments,
    .normalise = normalise,
    .sum_gradients = sum_gradients,
    .input_gradients = input_gradients,
};

}  // namespace rondo::tensor
