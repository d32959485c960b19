#include <array>

#include "optimizer/sgd_kernel.hpp"

namespace rondo::sync {
namespace {

#if defined(__x86_64__)

// By wider and wider instructions, so the variants that run here are the first few.
constexpr std::array<SgdVariant, 3> all = {
    {{"baseline", update_sgd_baseline}, {"avx2", update_sgd_avx2}, {"avx512", update_sgd_avx512}}};

std::size_t supported() {
  __builtin_cpu_init();
  if (__builtin_cpu_supports("avx2") == 0) return 1;
  return __builtin_cpu_supports("avx512f") == 0 ? 2 : 3;
}

#else

constexpr std::array<SgdVariant, 1> all = {{{"baseline", update_sgd_baseline}}};

std::size_t supported() { return 1; }

#endif

}  // namespace

std::span<const SgdVariant> sgd_variants() { return std::span(all).first(supported()); }

}  // namespace rondo::sync
