#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <variant>

#include "collective/operation.hpp"
#include "collective/point_to_point.hpp"
#include "core/stage.hpp"
#include "fabric/dissemination_barrier.hpp"
#include "fabric/doubling_allreduce.hpp"
#include "fabric/hierarchical_allreduce.hpp"
#include "fabric/pairwise_alltoall.hpp"
#include "fabric/ring_allgather.hpp"
#include "fabric/ring_allreduce.hpp"
#include "fabric/ring_reduce_scatter.hpp"
#include "fabric/tree_broadcast.hpp"
#include "fabric/tree_reduce.hpp"
#include "links/link.hpp"
#include "node/direct_pull.hpp"
#include "node/direct_reduce.hpp"
#include "node/direct_reduce_scatter.hpp"
#include "node/slots.hpp"
#include "node/small.hpp"
#include "node/staged_exchange.hpp"
#include "node/staged_pull.hpp"
#include "node/staged_reduce.hpp"
#include "recorder/log.hpp"

namespace rondo::transport {

/// What a rank tells the next one of a group that spans nodes about each operation.
struct Header {
  std::uint64_t sequence = 0;
  shm::Fingerprint fingerprint = {};
};

/// The exchange of headers for one operation.
struct HeaderExchange {
  Header mine = {};
  Header theirs = {};
  Transfer sent;
  Transfer received;
  bool compared = false;
};

/// One posted operation, from post to release. Lives in its communicator's pool.
struct OperationRecord {
  Posted posted = {};
  Stage stage = Stage::complete;
  Protocol protocol = Protocol::small;
  bool any_private = false;         ///< some buffer that peers need is in ordinary memory
  std::size_t arrived = 0;          ///< members [0, arrived) have posted it, too
  bool listed = false;              ///< the communicator still needs it
  bool held = false;                ///< a Request refers to it
  bool ordered = true;              ///< a collective; point-to-point operations are not
  OperationRecord* next = nullptr;  ///< posted after this one

  /// Since when test() has known that a peer which it needs is gone.
  std::optional<std::chrono::steady_clock::time_point> lost_since = {};

  recorder::Stamp stamp = {};  ///< its entry in the flight recorder

  HeaderExchange header;
  Parts parts;  ///< of a point-to-point operation
  PointToPointCall call = PointToPointCall::send;

  std::variant<std::monostate, SmallOperation, DirectPull, DirectReduce, DirectReduceScatter,
               StagedExchange, StagedPull, StagedReduce, PointToPoint, RingAllreduce,
               RingReduceScatter, RingAllgather, DoublingAllreduce, HierarchicalAllreduce,
               TreeBroadcast, TreeReduce, PairwiseAlltoall, DisseminationBarrier>
      storage = {};
  Operation* operation = nullptr;  ///< in `storage`, while running

  /// Also told to the flight recorder.
  void enter(Stage reached) noexcept {
    stage = reached;
    stamp.note(reached);
  }
  /// A small operation is complete; whoever had to wait for it tells the recorder the time.
  void end_untimed() noexcept {
    stage = Stage::complete;
    stamp.note_untimed(Stage::complete);
  }
  [[nodiscard]] bool finished() const noexcept {
    return stage == Stage::complete || stage == Stage::failed;
  }
};

}  // namespace rondo::transport
