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
#include "collective/blocks.hpp"
#include "collective/flat/point_to_point.hpp"
#include "collective/team_work.hpp"
#include "message/header_exchange.hpp"
#include "recorder/log.hpp"
#include "world/stalls.hpp"

namespace rondo::transport {

/// The arrays of a coalesced allreduce, and where they lie side by side while it runs. Kept by its
/// record, so that the next one of the same size allocates nothing. A call copies a tile.
class Coalesced {
 public:
  Coalesced(SharedArena& arena, Team* team) : team_(team), memory_(&arena) {}

  void begin(std::span<const Block> arrays) {
    forget();
    for (const Block& array : arrays) bytes_ += array.bytes();
    memory_.resize(std::max(memory_.size(), bytes_));
    arrays_.assign(arrays.begin(), arrays.end());
  }
  /// True when all is packed.
  [[nodiscard]] bool pack() noexcept {
    return copy_tile(packed_, [](std::byte* array, std::byte* packed, std::size_t length) {
      std::copy_n(array, length, packed);
    });
  }
  /// When it is complete; true when all is back.
  [[nodiscard]] bool unpack() noexcept {
    return copy_tile(unpacked_, [](std::byte* array, std::byte* packed, std::size_t length) {
      std::copy_n(packed, length, array);
    });
  }
  /// Nothing is written when it has failed.
  void forget() noexcept {
    arrays_.clear();
    bytes_ = packed_ = unpacked_ = 0;
  }
  [[nodiscard]] std::byte* data() noexcept { return memory_.data(); }

 private:
  /// Calls copy(in an array, side by side, bytes) for parts of the arrays' bytes from `done` on;
  /// true when these were the last.
  template <typename Copy>
  bool copy_tile(std::size_t& done, Copy copy) {
    const std::size_t begin = done;
    done += std::min(threads_of(team_) * joined_bytes, bytes_ - begin);
    for_parts(team_, done - begin, [&](const TeamPart& part) {
      Pieces pieces(Range{begin + part.begin, begin + part.end});
      for (const Block& array : arrays_) {
        std::byte* const packed = memory_.data() + pieces.bytes();
        pieces.next(array.bytes(), [&](const Range& piece) {
          copy(array.data + piece.begin, packed + piece.begin, piece.size());
        });
      }
    });
    return done == bytes_;
  }

  Team* team_;
  std::size_t bytes_ = 0;
  std::size_t packed_ = 0;
  std::size_t unpacked_ = 0;
  std::vector<Block> arrays_;
  std::pmr::vector<std::byte> memory_;
};

/// The findings of the looks at a rank that an operation needs and that has ended.
struct KnownLoss {
  using Time = std::chrono::steady_clock::time_point;

  std::optional<Time> quiet_since = {};  ///< nothing at all has arrived
  std::optional<Time> since = {};        ///< nothing has moved in the operation's communicator
  std::size_t member = 0;                ///< of the communicator, which is lost
  std::uint64_t moves = 0;               ///< CommunicatorCore::moves() at the last look
};

/// An operation as the ranks of a node agree on it and run it; see SlotStage.
struct SlotOperation : Waiter {
  Posted posted = {};
  Protocol protocol = Protocol::small;
  bool any_private = false;        ///< some buffer that peers need is in ordinary memory
  bool all_in_bulk = true;         ///< all ranks have a copy of theirs in a bulk payload
  std::size_t arrived = 0;         ///< members [0, arrived) have posted it, too
  Operation* operation = nullptr;  ///< while running

  [[nodiscard]] bool finished() const noexcept {
    return stage == Stage::complete || stage == Stage::failed;
  }
};

/// One posted operation, from post to release. Lives in its communicator's pool.
struct OperationRecord : SlotOperation {
  bool brief = false;               ///< takes about a microsecond: its steps are not timed
  bool listed = false;              ///< the communicator still needs it
  bool held = false;                ///< a Request refers to it
  bool ordered = true;              ///< a collective; point-to-point operations are not
  OperationRecord* next = nullptr;  ///< posted after this one

  /// The round of checks in which test() has looked at its peers last.
  std::uint64_t checked_in = 0;
  /// Since when this rank has waited for it or tested it, with pauses or without.
  std::optional<std::chrono::steady_clock::time_point> wanted_since = {};
  std::optional<KnownLoss> loss = {};
  /// Used by Request::test() alone: the value of WorldCore::moves() at its last call.
  std::uint64_t moves_seen = 0;

  /// As it is posted, in this round of checks, after so many failures.
  void forget_waits(std::uint64_t round, std::uint64_t failures) noexcept {
    checked_in = round;
    failures_before = failures;
    wanted_since.reset();
    loss.reset();
  }

  recorder::Stamp stamp = {};  ///< its entry in the flight recorder

  std::unique_ptr<HeaderExchange> header = {};  ///< where ranks are on several nodes
  Parts parts;                                  ///< of a point-to-point operation
  PointToPointCall call = PointToPointCall::send;

  std::unique_ptr<Coalesced> coalesced = {};  ///< made by the first that needs it
  bool finishing = false;   ///< all ranks have done their parts, and finish() has begun
  std::size_t divided = 0;  ///< bytes of an average between nodes

  OperationStorage<> storage;  ///< of `operation`

  /// Also told to the flight recorder.
  void enter(Stage reached) noexcept {
    stage = reached;
    stamp.note(reached);
  }
  void enter_untimed(Stage reached) noexcept {
    stage = reached;
    stamp.note_untimed(reached);
  }
  /// A small operation is complete; whoever had to wait for it tells the recorder the time.
  void end_untimed() noexcept {
    stage = Stage::complete;
    stamp.note_untimed(Stage::complete);
  }
};

}  // namespace rondo::transport
