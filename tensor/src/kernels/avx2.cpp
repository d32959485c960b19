// The loops for CPUs with AVX2: vectors of 8 floats.
#define RONDO_VECTOR_FLOATS 8
#include "batch_norm.inc"
#include "elementwise.inc"
#include "variants.hpp"

namespace rondo::tensor {

const Kernels avx2_kernels = {
    .backward_relu = backward_relu,
    .add = add,
    .sum_moments = sum_moments,
    .normalise = normalise,
    .sum_gradients = sum_gradients,
    .input_gradients = input_gradients,
};

}  // namespace rondo::tensor
