#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include <rondo/transport/error.hpp>

#include "recorder/memory.hpp"

namespace rondo::transport::recorder {

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
  [[nodiscard]] Header& header() const noexcept;
  [[nodiscard]] Log* make_log();
  [[nodiscard]] Log* take_closed();

  std::shared_ptr<Memory> memory_;
  std::vector<Log*> closed_;  // oldest first
  std::atomic<bool> failed_{false};
};

}  // namespace rondo::transport::recorder
