#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <span>

#include "links/fifo.hpp"
#include "links/link.hpp"
#include "links/shm/ring.hpp"
#include "shm/doorbell.hpp"
#include "shm/memory.hpp"

// What a rank keeps for itself about its messages: posted sends and receives, messages that came
// before their receive, and the queues of them.

namespace rondo::transport::shm_link {

/// Objects that are made once and used again: after the first time, no allocation.
template <typename T>
class Pool {
 public:
  [[nodiscard]] T& acquire() {
    if (free_.empty()) return all_.emplace_back();
    return free_.pop();
  }
  void release(T& item) noexcept { free_.push(item); }

 private:
  std::deque<T> all_;
  Fifo<T> free_;
};

struct ShmPeer;

/// Why a transfer failed.
enum class Failure : std::int32_t {
  none = 0,
  truncated = Transfer::truncated,
  withdrawn = 1,
  cancelled,
  no_memory,
  unreachable
};

/// A message that has come, or has been announced.
struct Incoming {
  std::uint64_t tag = 0;
  std::size_t bytes = 0;
  const std::byte* source = nullptr;  ///< where this rank can read it, unless it is bounced
  bool bounced = false;               ///< has to be asked for, and comes through a bounce buffer
  MessageState* state = nullptr;      ///< null: no one waits for it to be consumed
  Transfer* own_send =
      nullptr;  ///< of a message to oneself that is copied out of the sender's memory
};

/// A message that came before its receive. If it was inlined, its source is `copy`.
struct Unexpected {
  Incoming message = {};
  std::array<std::byte, inline_bytes> copy{};
  Unexpected* next = nullptr;
};

/// A posted receive.
struct Receive {
  Transfer* transfer = nullptr;
  ShmPeer* from = nullptr;
  std::uint64_t tag = 0;
  std::span<std::byte> room = {};
  Incoming message = {};  ///< once it is matched
  std::size_t copied = 0;
  Receive* next = nullptr;
};

/// A posted send that has not been finished at once: it waits for a slot, or for the receiver.
struct Send {
  Transfer* transfer = nullptr;  ///< null: done for its poster, or withdrawn
  ShmPeer* to = nullptr;
  std::uint64_t tag = 0;
  std::span<const std::byte> data = {};
  MessageState* state = nullptr;
  std::byte* bounce = nullptr;  ///< the bounce buffer of an ordinary message
  std::uint64_t filled = 0;     ///< fragments
  Send* next = nullptr;
};

/// What there is between this rank and one other.
struct ShmPeer {
  int rank = 0;
  shm::RankMemory* memory = nullptr;  ///< null: on another node

  RingWriter out = {};       ///< attached on first use
  Fifo<Send> waiting = {};   ///< for a free slot, in the order posted
  bool has_waiting = false;  ///< is in the sender's list of such peers

  RingReader in = {};                ///< attached once the peer has made it
  Fifo<Receive> posted = {};         ///< not matched, in the order posted
  Fifo<Unexpected> unexpected = {};  ///< not matched, in the order sent
  bool listened_to = false;          ///< is in the receiver's list of such peers
};

/// Ends a transfer: nothing refers to it any more.
inline void finish(Transfer& transfer, Failure failure) noexcept {
  transfer.state = failure == Failure::none ? TransferState::done : TransferState::failed;
  transfer.error = static_cast<std::int32_t>(failure);
  transfer.handle = nullptr;
}

/// Wakes `to` if it sleeps: there is something new for it in memory. Ranks that never sleep
/// (`may_sleep` is false) need no fence and no look.
inline void notify(const ShmPeer& to, bool may_sleep) noexcept {
  if (!may_sleep) return;
  shm::fence_before_ringing();
  shm::ring_if_asleep(to.memory->header());
}

}  // namespace rondo::transport::shm_link
