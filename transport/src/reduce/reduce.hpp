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

/// The reductions of one instruction set. All sets give the same bits.
struct ReductionTable {
  std::string_view name;
  bool usable;  ///< on this machine
  Reduction (*find)(ElementType type, ReduceOp op);
};

/// Every table that was compiled, the best usable one last.
[[nodiscard]] std::span<const ReductionTable> reduction_tables() noexcept;

/// From the best usable table.
[[nodiscard]] Reduction find_reduction(ElementType type, ReduceOp op) noexcept;

}  // namespace rondo::transport
