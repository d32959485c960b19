#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <rondo/transport/error.hpp>

#include "memory/memory.hpp"
#include "recorder/log.hpp"

namespace rondo::transport::recorder {

/// Memory that one rank records into, as the rank itself, a peer or a launcher holds it.
class Memory {
 public:
  /// New and empty.
  [[nodiscard]] static Memory create();
  /// Another rank's.
  [[nodiscard]] static Memory map(shm::Descriptor descriptor);
  /// The memory that a launcher left open under `descriptor`, for this process to record into;
  /// nothing when there is something else, because a program between the two has closed it.
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

/// An Entry as it was at one moment.
struct EntryCopy {
  std::uint64_t index = 0;
  std::uint64_t number = 0;
  std::uint8_t operation = 0;
  std::uint8_t type = 0;
  std::uint8_t reduction = 0;
  std::uint8_t stage = 0;
  std::int32_t partner = -1;
  std::uint64_t count = 0;
  std::uint64_t bytes = 0;
  std::uint64_t posted = 0;
  std::uint64_t started = 0;
  std::uint64_t ended = 0;
};

/// The operations that `log` remembers, from old to new; its rank may go on recording meanwhile.
/// One that is being written just now, or has been overwritten, is left out.
[[nodiscard]] std::vector<EntryCopy> copy_entries(const Log& log);

/// Turns ticks of a rank into nanoseconds since it began to record.
///
/// The pace of the processor's counter is nowhere to be read: it follows from the two clocks
/// having been read together twice, when the record began and now.
class TickScale {
 public:
  TickScale(const Moment& began, const Moment& now) noexcept;
  [[nodiscard]] double microseconds(std::uint64_t ticks) const noexcept;

 private:
  std::uint64_t first_;
  double nanoseconds_per_tick_;
};

/// The contents of `memory` as a JSON object (see rondo/transport/flight_record.hpp); empty when no
/// rank has begun to record. `reason` says why it is wanted.
[[nodiscard]] std::string to_json(const Memory& memory, std::string_view reason);

/// `text` between quotation marks, with what JSON does not allow escaped or replaced.
[[nodiscard]] std::string quoted(std::string_view text);

/// Writes `memory` as JSON to `path`: aside, synced, and renamed, so that whoever finds the file
/// finds all of it. Makes the folder. False when no rank has begun to record. Throws
/// std::system_error that names the file, also where that is a device, a pipe or a folder.
bool dump(const Memory& memory, std::string_view reason, const std::filesystem::path& path);

/// "flight-rank7.json" in `folder`.
[[nodiscard]] std::filesystem::path dump_path(const std::filesystem::path& folder, int rank);

}  // namespace rondo::transport::recorder
