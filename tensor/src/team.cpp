#include "team.hpp"

#include <pmmintrin.h>

#ifdef _OPENMP
#include <omp.h>
#else
// oneDNN's runtime, which clang ships no header for.
extern "C" {
void omp_set_num_threads(int threads);
int omp_get_max_threads();
}
#endif

namespace rondo::tensor {
namespace {

void flush_denormals() {
  _MM_SET_FLUSH_ZERO_MODE(_MM_FLUSH_ZERO_ON);
  _MM_SET_DENORMALS_ZERO_MODE(_MM_DENORMALS_ZERO_ON);
}

// The size of the largest team whose threads this thread has prepared. Threads that the runtime
// makes later inherit the control word of this one.
thread_local int prepared_threads = 0;

}  // namespace

void prepare_team(int threads) {
  if (omp_get_max_threads() != threads) omp_set_num_threads(threads);
  flush_denormals();
  if (prepared_threads >= threads) return;
  for_each_part(threads, [](int) { flush_denormals(); });
  prepared_threads = threads;
}

}  // namespace rondo::tensor
