#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <string_view>

#include <rondo/transport/export.hpp>

namespace rondo::transport {

namespace recorder {
class Memory;
}

/// The memory into which a rank records what it does, held by another process: a launcher that
/// makes it before the rank starts, and reads it when the rank is gone.
///
///     FlightRecord record = FlightRecord::create();
///     // start the rank with record.descriptor() open and its number in RONDO_RECORDER; later:
///     record.write(FlightRecord::path_in("records", 0), "rank 0 was killed");
///
/// - **What it holds.** The last 1,024 operations of each communicator of one World, collectives
///   and point-to-point ones, with their states and times; and what first went wrong. The records
///   of a second World of the same process replace those of the first.
/// - **When.** It may be read at any time, while the rank records, stops or is dead.
/// - **Size.** 65 KiB for each communicator that exists at the same time.
///
/// The text is one JSON object:
///
///     format, version          "rondo-flight-record-1", the library's version
///     reason                   why it was written
///     rank, size, pid, host    whose it is
///     failure                  null, or the first: {"kind": "peer lost", "text": "rank 3 ..."}
///     began_unix_us            when the World was made; all other times count from here
///     dumped_us                when this was written, in microseconds
///     communicators            a list of
///       context, state         its number, "open" or "closed" (destroyed)
///       rank, size, members    its ranks' ranks in the World (at most 256 are named)
///       posted                 operations so far
///       operations             the last of them, from old to new:
///         index                counts all operations of the communicator, from 1
///         operation            "allreduce", ..., "send", "recv", "sendrecv", "put_signal", ...
///         number, root         of a collective, as error messages have it
///         peer, tag            of a point-to-point operation; the first of several
///         type, reduction, count, bytes
///         state                queued, published, running, draining, complete, failed
///         posted_us, started_us, ended_us    null: not yet, or not measured: an operation of a
///                              few KiB has no start of its own, and no end when it was complete
///                              within about a microsecond of being waited for
class RONDO_TRANSPORT_API FlightRecord {
 public:
  /// Empty memory. Throws Error(Errc::out_of_memory).
  [[nodiscard]] static FlightRecord create();

  FlightRecord(FlightRecord&&) noexcept;
  FlightRecord& operator=(FlightRecord&&) noexcept;
  FlightRecord(const FlightRecord&) = delete;
  FlightRecord& operator=(const FlightRecord&) = delete;
  ~FlightRecord();

  /// Open as long as this object; closed when a program is executed, unless told otherwise.
  [[nodiscard]] int descriptor() const noexcept;

  /// Has the rank recorded a failure: a lost peer, a deadline, a mismatch, an abort?
  [[nodiscard]] bool tells_of_failure() const;

  /// The JSON; empty while no rank has begun to record.
  [[nodiscard]] std::string json(std::string_view reason) const;

  /// Writes the JSON to `path`, aside first, then synced and renamed; makes the folder. False
  /// while no rank has begun to record. Throws std::system_error.
  bool write(const std::filesystem::path& path, std::string_view reason) const;

  /// "flight-rank7.json" in `folder`: what ranks, too, call their records.
  [[nodiscard]] static std::filesystem::path path_in(const std::filesystem::path& folder, int rank);

 private:
  explicit FlightRecord(std::unique_ptr<recorder::Memory> memory) noexcept;
  std::unique_ptr<recorder::Memory> memory_;
};

}  // namespace rondo::transport
