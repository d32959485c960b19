#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <memory_resource>
#include <optional>
#include <span>
#include <vector>

#include <rondo/transport/block.hpp>
#include <rondo/transport/world.hpp>

#include "collective/algorithms.hpp"
#include "core/header_exchange.hpp"
#include "fabric/point_to_point.hpp"
#include "recorder/log.hpp"

namespace rondo::transport {

/// The arrays of a coalesced allreduce, and where they lie side by side while it runs. Kept by its
/// record, so that the next one of the same size allocates nothing.
class Coalesced {
 public:
  explicit Coalesced(SharedArena& arena) : memory_(&arena) {}

  void pack(std::span<const Block> arrays) {
    arrays_.assign(arrays.begin(), arrays.end());
    std::size_t bytes = 0;
    for (const Block& array : arrays) bytes += array.bytes();
    memory_.resize(std::max(memory_.size(), bytes));
    std::byte* to = memory_.data();
    for (const Block& array : arrays) to = std::copy_n(array.data, array.bytes(), to);
  }
  /// Once, when it is complete.
  void unpack() noexcept {
    const std::byte* from = memory_.data();
    for (const Block& array : arrays_) {
      std::copy_n(from, array.bytes(), array.data);
      from += array.bytes();
    }
    forget();
  }
  /// Nothing is written when it has failed.
  void forget() noexcept { arrays_.clear(); }
  [[nodiscard]] std::byte* data() noexcept { return memory_.data(); }

 private:
  std::vector<Block> arrays_;
  std::pmr::vector<std::byte> memory_;
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

  std::unique_ptr<Coalesced> coalesced = {};  ///< made by the first that needs it

  OperationStorage<> storage;
  Operation* operation = nullptr;  ///< in `storage`, while running

  /// Also told to the flight recorder.
  void enter(Stage reached) noexcept {
    if (reached == Stage::complete && coalesced) coalesced->unpack();
    stage = reached;
    stamp.note(reached);
  }
  /// A small operation is complete; whoever had to wait for it tells the recorder the time.
  void end_untimed() noexcept {
    if (coalesced) coalesced->unpack();
    stage = Stage::complete;
    stamp.note_untimed(Stage::complete);
  }
  [[nodiscard]] bool finished() const noexcept {
    return stage == Stage::complete || stage == Stage::failed;
  }
};

}  // namespace rondo::transport
