#pragma once

#include <rondo/transport/export.hpp>

namespace rondo::transport {

/// The threads that a host program lends to the transport for its reductions.
///
/// The transport starts no threads of its own. Without a Team the calling thread does all work.
/// Cuts depend on size() alone, so the bits do not depend on timing.
class RONDO_TRANSPORT_API Team {
 public:
  Team() = default;
  Team(const Team&) = delete;
  Team& operator=(const Team&) = delete;
  virtual ~Team();

  [[nodiscard]] virtual int size() const noexcept = 0;

  /// Calls part(context, i) once for every 0 <= i < size(), and returns when all have returned.
  virtual void run(void (*part)(void* context, int index), void* context) = 0;
};

}  // namespace rondo::transport
