#pragma once

#include <cstdint>

namespace rondo::transport {

/// How far one posted operation has come on this rank.
enum class Stage : std::uint8_t {
  queued,     ///< its slot is still in use by an older operation
  published,  ///< peers can see it; waits until all ranks have posted it
  running,    ///< all have; this rank does its part
  draining,   ///< this rank's part is done; waits for the peers'
  complete,
  failed,
};

}  // namespace rondo::transport
