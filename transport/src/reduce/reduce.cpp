#include "reduce/reduce.hpp"

#include <array>

namespace rondo::transport {

namespace baseline {
Reduction find(ElementType type, ReduceOp op);
}
#ifdef RONDO_X86_SETS
namespace avx2 {
Reduction find(ElementType type, ReduceOp op);
}
namespace avx512 {
Reduction find(ElementType type, ReduceOp op);
}
#endif

std::span<const ReductionTable> reduction_tables() noexcept {
#ifdef RONDO_X86_SETS
  static const std::array tables{
      ReductionTable{"baseline", true, &baseline::find},
      ReductionTable{"avx2", __builtin_cpu_supports("avx2") != 0, &avx2::find},
      ReductionTable{
          "avx512",
          __builtin_cpu_supports("avx512f") != 0 && __builtin_cpu_supports("avx512bw") != 0,
          &avx512::find},
  };
#else
  static const std::array tables{ReductionTable{"baseline", true, &baseline::find}};
#endif
  return tables;
}

Reduction find_reduction(ElementType type, ReduceOp op) noexcept {
  static const ReductionTable* const best = [] {
    const ReductionTable* found = nullptr;
    for (const ReductionTable& table : reduction_tables()) {
      if (table.usable) found = &table;
    }
    return found;
  }();
  return best->find(type, op);
}

}  // namespace rondo::transport
