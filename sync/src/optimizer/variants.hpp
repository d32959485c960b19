#pragma once

#include <cstddef>

namespace rondo::sync {

/// One compilation of a kernel, for one instruction set.
template <typename Kernel>
struct Variant {
  const char* instruction_set;
  Kernel kernel;
};

/// How many of a kernel's variants this machine can run: the first few, since they are ordered by
/// wider and wider instructions (baseline, avx2, avx512; elsewhere than on x86-64 the baseline).
[[nodiscard]] std::size_t runnable_variants();

}  // namespace rondo::sync
