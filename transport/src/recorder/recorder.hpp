#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include <rondo/transport/error.hpp>

#include "recorder/log.hpp"
#include "shm/memory.hpp"

namespace rondo::transport::recorder {

/// Memory that one rank records into, as the rank itself, a peer or a launcher holds it.
class Memory {
 public:
  /// New and empty.
  [[nodiscard]] static Memory create();
  /// Somebody else's.
  [[nodiscard]] static Memory map(shm::Descriptor descriptor);
  /// What a launcher left open under `descriptor`, for this process to record into; nothing when
  /// there is something else, because a program between the two has closed it.
  [[nodiscard]] static std::optional<Memory> inherit(int descriptor);

  /// Nothing while no rank has begun to record. Valid as long as this object.
  [[nodiscard]] const RecordHeader* header() const;
  [[nodiscard]] std::vector<const Log*> logs() const;

  /// For the rank itself.
  [[nodiscard]] shm::Segment& segment() noexcept { return segment_; }
  [[nodiscard]] int descriptor() const noexcept { return segment_.descriptor(); }

 private:
  explicit Memory(shm::Segment segment) : segment_(std::move(segment)) {}
  [[nodiscard]] std::size_t size() const;

  shm::Segment segment_;
};

/// The writing end of a rank's flight recorder.
///
/// Belongs to the World's thread, but for note_failure(). Nothing here fails: what cannot be
/// recorded, for lack of memory, is not.
class Recorder {
 public:
  /// Begins to record into `memory`, over whatever an earlier World left there.
  Recorder(std::shared_ptr<Memory> memory, int rank, int size, std::string_view host);

  /// A log for a new communicator: that of the one destroyed longest ago, or a new one. Null when
  /// there is no memory for it.
  [[nodiscard]] Log* open_log(std::uint32_t context, int rank, std::span<const int> members);
  /// It stays readable until it is needed again.
  void close_log(Log& log) noexcept;

  /// Keeps the first failure, for whoever reads this when the rank is gone. From any thread.
  void note_failure(Errc code, std::string_view text) noexcept;

 private:
  [[nodiscard]] RecordHeader& header() const noexcept;
  [[nodiscard]] Log* make_log();
  [[nodiscard]] Log* take_closed();

  std::shared_ptr<Memory> memory_;
  std::vector<Log*> closed_;  // oldest first
  std::atomic<bool> failed_{false};
};

}  // namespace rondo::transport::recorder
