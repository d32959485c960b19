#pragma once

#include <chrono>
#include <cstdint>
#include <optional>

#include "collective/algorithms.hpp"
#include "fabric/point_to_point.hpp"
#include "links/link.hpp"
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

  OperationStorage<> storage;
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
