#pragma once

#include <cstdint>

namespace rondo::tensor {

/// Makes `threads` the size of the calling thread's team, oneDNN's and ours, and flushes denormals
/// to zero on all of it. Cheap when nothing has changed.
void prepare_team(int threads);

/// Part `part` of `count` things in `parts` fixed cuts: [first, last).
struct Cut {
  std::int64_t first = 0;
  std::int64_t last = 0;
};
[[nodiscard]] constexpr Cut cut(std::int64_t count, int part, int parts) noexcept {
  return {count * part / parts, count * (part + 1) / parts};
}

/// Calls run(0) ... run(parts - 1), each on a thread of the team. Without OpenMP (our clang builds:
/// a second OpenMP runtime beside oneDNN's would be a second team) one after another, with the
/// same result.
template <typename Run>
void for_each_part(int parts, const Run& run) {
  if (parts == 1) return run(0);
#ifdef _OPENMP
#pragma omp parallel for num_threads(parts) schedule(static, 1)
#endif
  for (int part = 0; part < parts; ++part) run(part);
}

}  // namespace rondo::tensor
