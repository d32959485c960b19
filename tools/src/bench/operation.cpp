// The list of operations: a line here, and a subcommand of `rondo bench` is there.

#include "bench/operation.hpp"

#include <array>

#include <fmt/format.h>

#include "failure.hpp"

namespace rondo::tools {
namespace {

using enum BenchPlaces;

constexpr std::size_t kibibyte = 1024;

// A tile has as many rows as its edge has pixels.
constexpr std::size_t largest_edge = 64 * kibibyte;

// Name, summary, default sizes, largest size, forms, who takes part, whether it reduces, and what
// makes it. Sizes begin where latency counts and end where bandwidth does; those of a halo are
// bytes of an edge.
constexpr std::array<OperationKind, 18> kinds = {{
    {"latency", "Time messages there and back between two ranks: one way", "4:4M", 0, out,
     BenchRanks::pair, false, make_latency},
    {"bandwidth", "Time windows of messages between two ranks", "4:4M", 0, out, BenchRanks::pair,
     false, make_bandwidth},
    {"allreduce", "Time reductions of which every rank gets the result", "4:64M", 0, both,
     BenchRanks::all, true, make_allreduce},
    {"reduce_scatter", "Time reductions of which every rank gets a share", "4:64M", 0, both,
     BenchRanks::all, true, make_reduce_scatter},
    {"allgather", "Time putting together what every rank has", "4:64M", 0, both, BenchRanks::all,
     false, make_allgather},
    {"broadcast", "Time giving all ranks what rank 0 has", "4:64M", 0, in, BenchRanks::all, false,
     make_broadcast},
    {"reduce", "Time reductions of which rank 0 gets the result", "4:64M", 0, both, BenchRanks::all,
     true, make_reduce},
    {"alltoall", "Time giving every rank a part of its own", "4:64M", 0, out, BenchRanks::all,
     false, make_alltoall},
    {"alltoallv", "Time giving every rank a part of its own, of unequal lengths", "4:64M", 0, out,
     BenchRanks::all, false, make_alltoallv},
    {"gather", "Time collecting at rank 0 what every rank has", "4:64M", 0, both, BenchRanks::all,
     false, make_gather},
    {"scatter", "Time giving every rank its part of what rank 0 has", "4:64M", 0, both,
     BenchRanks::all, false, make_scatter},
    {"scan", "Time running reductions, of the ranks up to this one", "4:4M", 0, both,
     BenchRanks::all, true, make_scan},
    {"exscan", "Time running reductions, of the ranks before this one", "4:4M", 0, both,
     BenchRanks::all, true, make_exscan},
    {"coalesced", "Time reductions of 16 arrays as one operation", "64:4M", 0, in, BenchRanks::all,
     true, make_coalesced},
    {"barrier", "Time waiting for each other", "", 0, in, BenchRanks::all, false, make_barrier},
    {"token", "Time signals between two ranks: one way", "", 0, in, BenchRanks::pair, false,
     make_token},
    {"segmented", "Time allreduces of disjoint groups of ranks at once", "4:64M", 0, both,
     BenchRanks::groups, true, make_allreduce},
    {"halo", "Time exchanging the edges of images' tiles in two dimensions", "64:64K", largest_edge,
     in, BenchRanks::all, false, make_halo},
}};

}  // namespace

// Types and reductions that the transport has, by the names that options and results use.
const Choices<transport::ElementType> element_types = {
    {"f32", transport::ElementType::f32},   {"f64", transport::ElementType::f64},
    {"bf16", transport::ElementType::bf16}, {"f16", transport::ElementType::f16},
    {"i32", transport::ElementType::i32},   {"i64", transport::ElementType::i64},
    {"u8", transport::ElementType::u8},     {"i8", transport::ElementType::i8},
    {"i16", transport::ElementType::i16},   {"u16", transport::ElementType::u16},
    {"u32", transport::ElementType::u32},   {"u64", transport::ElementType::u64}};

const Choices<transport::ReduceOp> reductions = {
    {"sum", transport::ReduceOp::sum},       {"min", transport::ReduceOp::min},
    {"max", transport::ReduceOp::max},       {"prod", transport::ReduceOp::prod},
    {"avg", transport::ReduceOp::avg},       {"bit_and", transport::ReduceOp::bit_and},
    {"bit_or", transport::ReduceOp::bit_or}, {"bit_xor", transport::ReduceOp::bit_xor}};

std::span<const OperationKind> operation_kinds() { return kinds; }

const OperationKind& operation_kind(std::string_view name) {
  for (const OperationKind& kind : kinds) {
    if (kind.name == name) return kind;
  }
  throw UsageError(fmt::format("there is no operation '{}'", name));
}

}  // namespace rondo::tools
