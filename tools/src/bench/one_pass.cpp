#include "bench/one_pass.hpp"

namespace rondo::tools {

void one_pass_baseline(float* const* buffers, int ranks, std::size_t first, std::size_t last);
void one_pass_avx2(float* const* buffers, int ranks, std::size_t first, std::size_t last);
void one_pass_avx512(float* const* buffers, int ranks, std::size_t first, std::size_t last);

OnePass one_pass_for_this_processor() {
  if (__builtin_cpu_supports("avx512f")) return one_pass_avx512;
  if (__builtin_cpu_supports("avx2")) return one_pass_avx2;
  return one_pass_baseline;
}

}  // namespace rondo::tools
