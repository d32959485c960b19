#pragma once

#include <rondo/transport/export.hpp>

namespace rondo::transport {

/// The threads that a host program lends to the transport for its reductions and copies.
///
/// The transport starts no threads of its own. Without a Team the calling thread does all work.
/// With one it shares out every reduction and copy of at least 64 KiB: of collectives inside a node
/// and between nodes, and where rows with gaps or coalesced arrays are packed. A link makes its own
/// copies without the Team. Cuts depend on lengths and size() alone, and results have the same bits
/// whatever size() is; ranks may have Teams of different sizes.
///
/// - **Callers.** run() is called by the World's thread only, within whatever makes progress:
///   World::progress(), Request::test(), wait() and wait_for(), the destructor of a pending
///   Request, Communicator::split(); and within calls that pack what they post:
///   allreduce_coalesced(), sendrecv() and the start of its Plan. It is never called from a part.
/// - **Errors.** Neither run() nor a part throws: other ranks may wait for what this one has begun.
/// - **Re-entry.** run() must not use the World, its communicators or its requests: they are in the
///   middle of an operation. Parts do not use them either.
/// - **NUMA.** The transport binds no thread and moves no memory. The pages of an arena are
///   allocated when it grows, by the thread that makes it grow, and so by default on the domain of
///   that thread; who touches them first does not matter. A rank whose Team stays on the cores of
///   one domain, as `rondo run` binds it, reads and writes its own arena there. Part i takes the
///   same elements of a buffer each time: a Team that gives it to the same core each time keeps
///   that core's caches useful.
class RONDO_TRANSPORT_API Team {
 public:
  Team() = default;
  Team(const Team&) = delete;
  Team& operator=(const Team&) = delete;
  virtual ~Team();

  /// At least 1, and always the same.
  [[nodiscard]] virtual int size() const noexcept = 0;

  /// Calls part(context, i) once for every 0 <= i < size(), on any threads, at the same time or one
  /// after the other, and returns when all have returned. No part waits for another.
  virtual void run(void (*part)(void* context, int index), void* context) = 0;
};

}  // namespace rondo::transport
