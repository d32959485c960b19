#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <system_error>

#include <rondo/transport/export.hpp>

namespace rondo::transport {

struct OperationRecord;
class CommunicatorCore;

/// A handle to one posted operation.
///
/// - **Ownership.** Move-only. A default-constructed or moved-from Request is empty, and counts
///   as complete. The operation's buffers are lent until it completes.
/// - **After a failure** the buffers are the caller's again: no rank and no link stores there, or
///   uses what it reads there, whenever other ranks post their part. One exception: a peer stopped
///   (SIGSTOP, a debugger) in the middle of a step. It is waited for half a second; when it goes on
///   later, it may finish that step, at most 64 KiB per thread of its Team, in buffers that lie in
///   a SharedArena. Until then the arena does not hand out that memory again, even if it is freed.
/// - **Destruction** of a pending Request waits for it, to the deadline; a failure then poisons
///   the communicator, where the next call reports it. A posted collective cannot be cancelled:
///   peers may already be storing into its buffer.
/// - **Progress.** test() and wait() advance every operation of the World, not just this one.
/// - **Threads.** Belongs to the World's thread, or with Threads::multiple to one thread at a time.
class RONDO_TRANSPORT_API Request {
 public:
  Request() noexcept = default;
  Request(Request&& other) noexcept;
  Request& operator=(Request&& other) noexcept;
  Request(const Request&) = delete;
  Request& operator=(const Request&) = delete;
  ~Request();

  /// True once the operation has completed; throws its Error if it failed. Does not wait. Now and
  /// then it looks for aborts and lost peers, as wait() does, so a program that never waits notices
  /// them as well.
  [[nodiscard]] bool test();

  /// Has the operation completed or failed? Unlike test() it makes no progress and looks for no
  /// lost peers, so many requests are asked in little time: after one World::progress(), and a
  /// test() of one of them. True in a forked child, where test() throws.
  [[nodiscard]] bool finished() const noexcept;

  /// Returns when the operation has completed. Throws Error if it failed, or after
  /// WorldOptions::deadline; then it has failed, like all that is pending on the communicator.
  void wait();

  /// As wait(), where peers first do what may take longer than any message, such as writing files.
  /// Whenever the deadline has passed, `has_moved` is asked, on this thread, whether something has
  /// happened since it was asked last, or since this call; then the deadline begins anew, and
  /// WorldOptions::on_stall may be called again. It must not throw, and calls nothing of this
  /// World.
  void wait(const std::function<bool()>& has_moved);

  /// Waits for at most `limit`, with no other deadline. True when the operation has completed;
  /// throws Error if it failed. False after `limit`: nothing has changed, the buffers are still
  /// lent, and the operation may be waited for again.
  [[nodiscard]] bool wait_for(std::chrono::nanoseconds limit);

  /// Gives up a recv() or wait_signal() that is still pending, and frees its memory; the Request is
  /// empty then. A message or signal for it goes to the next of its peer and tag, unless it has
  /// begun to arrive. Anything else is left as it is, but for UCX and libfabric: there a long
  /// message that has begun, and whose sender does not look into the transport for half a second,
  /// is given up together with the connection, and all communicators of the two ranks fail.
  void cancel() noexcept;

  /// Does it stand for no operation?
  [[nodiscard]] bool empty() const noexcept { return record_ == nullptr; }

  /// The bytes that have come for a recv(), or for all of a sendrecv(), once it has completed: a
  /// message may be shorter than its place. 0 for anything else.
  [[nodiscard]] std::size_t received_bytes() const noexcept;

  /// The failure, or no error while pending and after success. Never throws.
  [[nodiscard]] std::error_code status() const noexcept;

 private:
  friend class CommunicatorCore;
  Request(std::shared_ptr<CommunicatorCore> core, OperationRecord* record) noexcept;
  void release() noexcept;

  std::shared_ptr<CommunicatorCore> core_;
  OperationRecord* record_ = nullptr;
};

// Several requests, of one World or of several communicators of it. Empty ones count as complete.

/// Returns when all have completed. Throws the Error of the first, in their order, that failed;
/// those behind it may be pending then. The World's deadline holds for each wait.
RONDO_TRANSPORT_API void wait_all(std::span<Request> requests);
/// Waits for at most `limit`. False when that was too short, and nothing has changed.
[[nodiscard]] RONDO_TRANSPORT_API bool wait_all_for(std::span<Request> requests,
                                                    std::chrono::nanoseconds limit);

/// Returns the index of one that has completed, the first if there are several, and leaves that
/// Request empty, so that the next call finds another. Returns nothing when all are empty.
///
/// Throws Error when one has failed, or after WorldOptions::deadline. It watches the peers that any
/// of them needs, not only those of the first.
[[nodiscard]] RONDO_TRANSPORT_API std::optional<std::size_t> wait_any(std::span<Request> requests);
/// Waits for at most `limit`. Nothing, too, when that was too short.
[[nodiscard]] RONDO_TRANSPORT_API std::optional<std::size_t> wait_any_for(
    std::span<Request> requests, std::chrono::nanoseconds limit);

/// An operation whose arguments were given and checked once, and that is started many times (what
/// MPI calls persistent). Starting it allocates nothing.
///
/// - **Buffers** are those of the call that made it. They are lent while one of its operations
///   is pending, and are this rank's otherwise.
/// - **Matching** is that of the operation itself: a rank may start a plan where another posts the
///   operation by itself. Several starts may be outstanding if the buffers allow it.
/// - **Threads.** As of a Request. May outlive its Communicator.
class RONDO_TRANSPORT_API Plan {
 public:
  Plan(Plan&& other) noexcept;
  Plan& operator=(Plan&& other) noexcept;
  Plan(const Plan&) = delete;
  Plan& operator=(const Plan&) = delete;
  ~Plan();

  /// Posts the operation.
  [[nodiscard]] Request start();

 private:
  friend class Communicator;
  Plan(std::shared_ptr<CommunicatorCore> core, OperationRecord& prototype) noexcept;

  std::shared_ptr<CommunicatorCore> core_;
  OperationRecord* prototype_;
};

}  // namespace rondo::transport
