// Which loops reduce on this machine. reduction_loops.cpp is compiled once for each instruction
// set, in a namespace of its own. The best set that the processor has is chosen at run time, when
// a reduction is first looked for, so that one build runs on every processor.

#include "reduce/reduce.hpp"

#include <array>

namespace rondo::transport {

namespace baseline {
Reduction find(ElementType type, ReduceOp op);
Division find_division(ElementType type);
}  // namespace baseline
#ifdef RONDO_X86_SETS
namespace avx2 {
Reduction find(ElementType type, ReduceOp op);
Division find_division(ElementType type);
}  // namespace avx2
namespace avx512 {
Reduction find(ElementType type, ReduceOp op);
Division find_division(ElementType type);
}  // namespace avx512
#endif

std::span<const ReductionTable> reduction_tables() noexcept {
#ifdef RONDO_X86_SETS
  static const std::array tables{
      ReductionTable{"baseline", true, &baseline::find, &baseline::find_division},
      ReductionTable{"avx2", __builtin_cpu_supports("avx2") != 0, &avx2::find,
                     &avx2::find_division},
      ReductionTable{
          "avx512",
          __builtin_cpu_supports("avx512f") != 0 && __builtin_cpu_supports("avx512bw") != 0 &&
              __builtin_cpu_supports("avx512dq") != 0 && __builtin_cpu_supports("avx512vl") != 0,
          &avx512::find, &avx512::find_division},
  };
#else
  static const std::array tables{
      ReductionTable{"baseline", true, &baseline::find, &baseline::find_division}};
#endif
  return tables;
}

namespace {

const ReductionTable& best_table() noexcept {
  static const ReductionTable* const best = [] {
    const ReductionTable* found = nullptr;
    for (const ReductionTable& table : reduction_tables()) {
      if (table.usable) found = &table;
    }
    return found;
  }();
  return *best;
}

}  // namespace

Reduction find_reduction(ElementType type, ReduceOp op) noexcept {
  return best_table().find(type, op);
}

Division find_division(ElementType type) noexcept { return best_table().find_division(type); }

}  // namespace rondo::transport
