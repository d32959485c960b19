#include "optimizer/variants.hpp"

namespace rondo::sync {

std::size_t runnable_variants() {
#if defined(__x86_64__)
  __builtin_cpu_init();
  if (__builtin_cpu_supports("avx2") == 0) return 1;
  return __builtin_cpu_supports("avx512f") == 0 ? 2 : 3;
#else
  return 1;
#endif
}

}  // namespace rondo::sync
