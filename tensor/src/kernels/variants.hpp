#pragma once

#include "kernels.hpp"

// The tables, one per translation unit.
namespace rondo::tensor {

extern const Kernels baseline_kernels;
extern const Kernels avx2_kernels;
extern const Kernels avx512_kernels;

}  // namespace rondo::tensor
