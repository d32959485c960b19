// The least that an allreduce inside a node can cost: one pass over the buffers of all ranks.
// Compiled once per instruction set, each time with another RONDO_NAME. Each buffer is read once
// and written once, without messages, flags or copies; no algorithm can do less. Two ranks have a
// loop of their own, which the compiler turns into vectors.

#include <cstddef>

namespace rondo::tools {

void RONDO_NAME(float* const* buffers, int ranks, std::size_t first, std::size_t last);

void RONDO_NAME(float* const* buffers, int ranks, std::size_t first, std::size_t last) {
  if (ranks == 2) {
    float* const a = buffers[0];
    float* const b = buffers[1];
    for (std::size_t i = first; i < last; ++i) {
      const float sum = a[i] + b[i];
      a[i] = sum;
      b[i] = sum;
    }
    return;
  }
  for (std::size_t i = first; i < last; ++i) {
    float sum = 0.0F;
    for (int rank = 0; rank < ranks; ++rank) sum += buffers[rank][i];
    for (int rank = 0; rank < ranks; ++rank) buffers[rank][i] = sum;
  }
}

}  // namespace rondo::tools
