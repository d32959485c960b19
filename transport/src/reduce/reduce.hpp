#pragma once

#include <cstddef>
#include <span>
#include <string_view>

#include <rondo/transport/element.hpp>

namespace rondo::transport {

/// Reduces elements [begin, end) of all `sources`, in their order, and stores the result into
/// the same elements of all `destinations`. A destination may be one of the sources, but must not
/// overlap one otherwise.
using Reduction = void (*)(const std::byte* const* sources, std::size_t source_count,
                           std::byte* const* destinations, std::size_t destination_count,
                           std::size_t begin, std::size_t end);

/// Divides `count` elements by `divisor`, as ReduceOp::avg does.
using Division = void (*)(std::byte* data, std::size_t count, std::size_t divisor);

/// The reductions of one instruction set. All sets give the same bits.
struct ReductionTable {
  std::string_view name;
  bool usable;                                       ///< on this machine
  Reduction (*find)(ElementType type, ReduceOp op);  ///< null for bits of floating point
  Division (*find_division)(ElementType type);
};

/// Every table that was compiled, the best usable one last.
[[nodiscard]] std::span<const ReductionTable> reduction_tables() noexcept;

/// From the best usable table: joins the sources of all ranks.
[[nodiscard]] Reduction find_reduction(ElementType type, ReduceOp op) noexcept;

/// The operation that joins the sources of some ranks with partial results: for `avg` it is `sum`,
/// and the result of all is divided at the end.
[[nodiscard]] constexpr ReduceOp partial_op(ReduceOp op) noexcept {
  return op == ReduceOp::avg ? ReduceOp::sum : op;
}
[[nodiscard]] inline Reduction find_partial_reduction(ElementType type, ReduceOp op) noexcept {
  return find_reduction(type, partial_op(op));
}
[[nodiscard]] Division find_division(ElementType type) noexcept;

}  // namespace rondo::transport
