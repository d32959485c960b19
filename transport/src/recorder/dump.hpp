#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "recorder/log.hpp"
#include "recorder/recorder.hpp"

namespace rondo::transport::recorder {

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

/// What is in `memory` as a JSON object (see rondo/transport/flight_record.hpp); empty when no
/// rank has begun to record. `reason` says why it is wanted.
[[nodiscard]] std::string to_json(const Memory& memory, std::string_view reason);

/// `text` between quotation marks, with what JSON does not allow escaped or replaced.
[[nodiscard]] std::string quoted(std::string_view text);

/// Writes `memory` as JSON to `path`: aside, synced, and renamed, so that whoever finds the file
/// finds all of it. Makes the folder. False when no rank has begun to record. Throws
/// std::system_error that names the file.
bool dump(const Memory& memory, std::string_view reason, const std::filesystem::path& path);

/// "flight-rank7.json" in `folder`.
[[nodiscard]] std::filesystem::path dump_path(const std::filesystem::path& folder, int rank);

}  // namespace rondo::transport::recorder
