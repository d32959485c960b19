// The loops for any x86-64 CPU: vectors of 4 floats.
#define RONDO_VECTOR_FLOATS 4
#include "elementwise.inc"
#include "variants.hpp"

namespace rondo::tensor {

const Kernels baseline_kernels = {
    .backward_relu = backward_relu,
    .add = add,
};

}  // namespace rondo::tensor
