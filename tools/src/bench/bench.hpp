#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include <rondo/transport/element.hpp>
#include <rondo/transport/reduce_op.hpp>

#include "bench/operation_kind.hpp"
#include "bench/row.hpp"
#include "bench/sampler.hpp"

namespace rondo::tools {

/// Of the smallest and of the largest sizes, unless the user says how many.
inline constexpr int most_iterations = 2000;
inline constexpr int least_iterations = 30;

enum class BenchMemory { arena, private_memory };

/// What to measure.
struct Bench {
  const OperationKind* kind = nullptr;
  std::vector<std::size_t> sizes = {};     ///< bytes; one, of any value, for what has no size
  std::vector<BenchMemory> memories = {};  ///< likewise
  std::vector<bool> in_place = {};         ///< one row for each
  transport::ElementType type = transport::ElementType::f32;
  transport::ReduceOp reduction = transport::ReduceOp::sum;
  BufferUse use = BufferUse::rewritten;
  int iterations = 0;  ///< per size; 0: the most below 64 KiB, 300 below 4 MiB, else the least
  int warm_up = -1;    ///< -1: a tenth of the iterations, and 2
  bool limit = false;  ///< measure one pass over shared memory in turn
  int first = 0;       ///< of the two, where two take part
  int peer = -1;       ///< of rank 0 where two take part; -1: the last rank
  int groups = 2;      ///< where groups take part: rank r is in group r modulo this
  bool both_ways = false;
};

/// Measures all that `bench` asks for. Collective; the rows are the same on every rank.
[[nodiscard]] std::vector<BenchRow> measure(transport::World& world, const Bench& bench);

/// "f32", ...; "sum", ...
[[nodiscard]] std::string_view name_of(transport::ElementType type);
[[nodiscard]] std::string_view name_of(transport::ReduceOp op);

}  // namespace rondo::tools
