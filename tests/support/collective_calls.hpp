#pragma once

// One table of the ways to call a collective. Whatever carries a collective is tested by it: Worlds
// over every backend, hierarchies of nodes, and links alone. call_buffers.hpp has the checker.

#include <algorithm>
#include <ostream>
#include <string_view>
#include <vector>

#include <rondo/transport/element.hpp>

namespace rondo::test {

enum class CallKind {
  allreduce,
  allreduce_coalesced,  ///< of three arrays, one of them empty
  reduce,
  reduce_scatter,
  allgather,
  broadcast,
  alltoall,
  alltoallv,
  gather,
  scatter,
  scan,
  exscan,
  barrier,
};

/// How the ranks' shares are cut.
enum class Shares {
  equal,
  uneven,      ///< rank 0 has none, and the others up to four elements more
  one_rank,    ///< one rank has all
  rows,        ///< uneven columns of rows with gaps between them
  equal_rows,  ///< equal columns of five rows with gaps between them
};

/// Where the result goes.
enum class Output {
  apart,     ///< into a buffer of its own
  in_place,  ///< into the input
  mixed,     ///< on even ranks into the input
  ordinary,  ///< into ordinary memory, wherever the input lies
};

/// A way to call a collective.
struct Call {
  const char* name;
  CallKind kind;
  Output output = Output::apart;
  Shares shares = Shares::equal;
  transport::ReduceOp op = transport::ReduceOp::sum;

  [[nodiscard]] bool has_root() const {
    return kind == CallKind::reduce || kind == CallKind::broadcast || kind == CallKind::gather ||
           kind == CallKind::scatter;
  }
  /// Does a rank's share have a place in a buffer of all shares?
  [[nodiscard]] bool has_shares() const {
    return kind == CallKind::reduce_scatter || kind == CallKind::allgather ||
           kind == CallKind::gather || kind == CallKind::scatter;
  }
  [[nodiscard]] bool has_rows() const {
    return shares == Shares::rows || shares == Shares::equal_rows;
  }
};
inline void PrintTo(const Call& call, std::ostream* out) { *out << call.name; }

inline const std::vector<Call>& all_calls() {
  using enum CallKind;
  static const std::vector<Call> calls{
      {"Allreduce", allreduce},
      {"AllreduceInPlace", allreduce, Output::in_place},
      {"AllreduceInPlaceOnSomeRanks", allreduce, Output::mixed},
      {"AllreduceIntoOrdinaryMemory", allreduce, Output::ordinary},
      {"AllreduceOfTheGreatest", allreduce, Output::apart, Shares::equal, transport::ReduceOp::max},
      {"AllreduceCoalesced", allreduce_coalesced, Output::in_place},
      {"AverageCoalesced", allreduce_coalesced, Output::in_place, Shares::equal,
       transport::ReduceOp::avg},
      {"Reduce", reduce},
      {"ReduceInPlace", reduce, Output::in_place},
      {"ReduceIntoOrdinaryMemory", reduce, Output::ordinary},
      {"ReduceScatter", reduce_scatter},
      {"ReduceScatterInPlace", reduce_scatter, Output::in_place},
      {"ReduceScatterOfUnevenShares", reduce_scatter, Output::apart, Shares::uneven},
      {"ReduceScatterOfUnevenSharesInPlace", reduce_scatter, Output::in_place, Shares::uneven},
      {"ReduceScatterForOneRank", reduce_scatter, Output::apart, Shares::one_rank},
      {"ReduceScatterOfRows", reduce_scatter, Output::apart, Shares::rows},
      {"ReduceScatterOfRowsInPlace", reduce_scatter, Output::in_place, Shares::rows},
      {"ReduceScatterOfEqualRows", reduce_scatter, Output::apart, Shares::equal_rows},
      {"Allgather", allgather},
      {"AllgatherInPlace", allgather, Output::in_place},
      {"AllgatherOfUnevenShares", allgather, Output::apart, Shares::uneven},
      {"AllgatherOfRows", allgather, Output::apart, Shares::rows},
      {"AllgatherOfRowsInPlace", allgather, Output::in_place, Shares::rows},
      {"AllgatherOfEqualRows", allgather, Output::apart, Shares::equal_rows},
      {"Broadcast", broadcast, Output::in_place},
      {"Alltoall", alltoall},
      {"Alltoallv", alltoallv},
      {"Gather", gather},
      {"GatherOfUnevenShares", gather, Output::apart, Shares::uneven},
      {"GatherOfUnevenSharesInPlace", gather, Output::in_place, Shares::uneven},
      {"Scatter", scatter},
      {"ScatterOfUnevenShares", scatter, Output::apart, Shares::uneven},
      {"Scan", scan},
      {"ScanInPlace", scan, Output::in_place},
      {"Exscan", exscan},
      {"ExscanInPlace", exscan, Output::in_place},
      {"Barrier", barrier},
  };
  return calls;
}

inline const Call& call_named(std::string_view name) {
  return *std::ranges::find(all_calls(), name, [](const Call& call) { return call.name; });
}

}  // namespace rondo::test
