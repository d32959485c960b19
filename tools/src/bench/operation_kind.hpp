#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string_view>

#include "bench/operation.hpp"

namespace rondo::tools {

/// Which of its two forms an operation has.
enum class BenchPlaces { in, out, both };

/// Who takes part in an operation.
enum class BenchRanks {
  all,
  pair,    ///< two; the others wait
  groups,  ///< all, in disjoint groups at the same time
};

/// One subcommand of `rondo bench`.
struct OperationKind {
  std::string_view name;
  std::string_view summary;
  std::string_view sizes;  ///< by default; empty: it has no size
  std::size_t most_bytes;  ///< that it can do; 0: any number
  BenchPlaces places;
  BenchRanks ranks;
  bool reduces;
  std::unique_ptr<BenchOperation> (*make)(const BenchSetting& setting);
};

/// All of them, in the order in which help lists them.
[[nodiscard]] std::span<const OperationKind> operation_kinds();

}  // namespace rondo::tools
