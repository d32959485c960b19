#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "links/fifo.hpp"
#include "links/shm/ring.hpp"
#include "memory/control_block.hpp"
#include "memory/memory.hpp"
#include "message/link.hpp"

// The private data of a rank about its messages: posted sends and receives, messages that came
// before their receive, and the queues of them; and the two halves of a link, which move them.

namespace rondo::transport::shm_link {

struct ShmPeer;

/// Why a transfer failed.
enum class Failure : std::int32_t {
  none = 0,
  truncated = Transfer::truncated,
  withdrawn = 1,
  cancelled,
  unreachable,
  no_memory = Transfer::no_memory,
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
  std::array<std::byte, ring_payload_bytes> copy{};
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

/// The state of the messages between this rank and one other.
struct ShmPeer {
  int rank = 0;
  shm::RankMemory* memory = nullptr;  ///< null: on another node

  RingWriter out = {};       ///< attached on first use
  Fifo<Send> waiting = {};   ///< for a free slot, in the order posted
  bool has_waiting = false;  ///< is in the sender's list of such peers
  std::size_t bounces = 0;   ///< buffers that its messages have; a rank that died keeps them

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

/// Memory for one rank's sends in its control segment: states of messages, eager buffers and bounce
/// buffers. All are made on first use, and used again. The buffers are bounded in number; states
/// are as many as messages are announced.
class SendMemory {
 public:
  explicit SendMemory(shm::RankMemory& mine) noexcept : mine_(&mine) {}

  /// A state about which nothing has been said. Throws Error(out_of_memory).
  [[nodiscard]] MessageState& acquire_state();
  void release(MessageState& state) noexcept { states_.push_back(&state); }

  /// A buffer whose last message has been consumed; null when there is none. The receiver frees it
  /// by storing `consumed`. Throws Error(out_of_memory).
  [[nodiscard]] EagerBuffer* acquire_eager();

  /// bounce_bytes bytes for a message to a peer whose messages have `of_peer` such buffers already;
  /// null when it has to wait for one of them. Throws Error(out_of_memory).
  [[nodiscard]] std::byte* acquire_bounce(std::size_t of_peer);
  void release(std::byte* bounce) noexcept { bounces_.push_back(bounce); }

  /// Where in the control segment something of it lies.
  [[nodiscard]] std::uint64_t offset_of(const void* thing) const noexcept;

 private:
  void make_states();
  void make_eager();
  [[nodiscard]] EagerBuffer* next_eager() noexcept;
  [[nodiscard]] bool may_have_bounce(std::size_t of_peer) const noexcept;

  shm::RankMemory* mine_;
  std::vector<MessageState*> states_;  // free ones; never grows in release()
  std::size_t states_made_ = 0;
  std::vector<EagerBuffer*> eager_;  // all; used in turn
  std::size_t next_eager_ = 0;
  std::vector<std::byte*> bounces_;  // free ones; never grows in release()
  std::size_t bounces_made_ = 0;
};

/// The sending half of a link, for messages to other ranks.
///
/// Up to 56 bytes travel in their slot, up to 8 KiB in an eager buffer: such sends are done as soon
/// as there is a free slot. A larger message is announced (rendezvous), and stays where it is until
/// the receiver has matched it: the receiver reads it out of the sender's arena; or, if it lies in
/// ordinary memory, requests it, and it comes through a bounce buffer of four fragments.
class Sender {
 public:
  Sender(shm::RankMemory& mine, RingOffset* rings, bool may_sleep)
      : mine_(&mine), rings_(rings), memory_(mine), may_sleep_(may_sleep) {}
  Sender(const Sender&) = delete;
  Sender& operator=(const Sender&) = delete;
  /// Withdraws what was not received.
  ~Sender();

  void post(ShmPeer& to, std::uint64_t tag, std::span<const std::byte> data, Transfer& transfer);
  /// Copies at most `budget` bytes, which it makes less. True if anything moved.
  bool progress(std::size_t& budget);
  void cancel(Transfer& transfer) noexcept;

 private:
  // The ways of a message: into the ring, or queued; then through its announcement.
  [[nodiscard]] bool push(ShmPeer& to, std::uint64_t tag, std::span<const std::byte> data,
                          Transfer& transfer);
  [[nodiscard]] bool try_push(ShmPeer& to, std::uint64_t tag, std::span<const std::byte> data,
                              Transfer& transfer);
  void announce(ShmPeer& to, std::uint64_t tag, std::span<const std::byte> data,
                Transfer& transfer);
  bool send_waiting();
  [[nodiscard]] bool step(Send& send, std::size_t& budget, bool& moved);
  [[nodiscard]] bool try_fill(Send& send, std::size_t& budget);
  [[nodiscard]] bool fill(Send& send, std::size_t& budget);

  shm::RankMemory* mine_;
  RingOffset* rings_;
  SendMemory memory_;
  Pool<Send> sends_;
  std::vector<ShmPeer*> with_waiting_;
  Fifo<Send> announced_;
  bool may_sleep_;
};

/// The receiving half of a link: matches messages with receives, and copies them out.
///
/// A peer's ring is read while a receive from it waits for its message, and when it gets full. An
/// unexpected message, whose receive is not posted yet, is kept: a small one as a copy, a larger
/// one as its announcement. When many are kept and still no receive is posted, the rest stays in
/// the ring and holds the sender up. When very many are kept while receives of other tags are
/// posted, the sender announces even small ones: so a flood of messages is bounded by what its
/// sender has pending.
class Receiver {
 public:
  /// `peers` is lent.
  Receiver(int rank, std::span<ShmPeer> peers, bool may_sleep)
      : rank_(rank), peers_(peers), may_sleep_(may_sleep) {}
  Receiver(const Receiver&) = delete;
  Receiver& operator=(const Receiver&) = delete;
  ~Receiver() = default;

  void post(ShmPeer& from, std::uint64_t tag, std::span<std::byte> room, Transfer& transfer);
  /// A message of this rank to itself; `own` is the rank's own ShmPeer.
  void send_own(ShmPeer& own, std::uint64_t tag, std::span<const std::byte> data,
                Transfer& transfer);
  /// Copies at most `budget` bytes of large messages, which it makes less, and reads at most one
  /// lap of each ring. True if anything moved.
  bool progress(std::size_t& budget);
  /// A receive, or a send to oneself.
  void cancel(ShmPeer& own, Transfer& transfer) noexcept;

 private:
  bool poll_awaited();
  bool poll_others();
  [[nodiscard]] bool find_ring_of(ShmPeer& from) const noexcept;
  bool read_ring(ShmPeer& from);
  void receive_front(ShmPeer& from);
  void keep_unexpected(ShmPeer& from, const Incoming& message);
  void accept(Receive& receive, const Incoming& message);
  [[nodiscard]] bool step(Receive& receive, std::size_t& budget, bool& moved);
  void copy_from_memory(Receive& receive, std::size_t& budget) noexcept;
  [[nodiscard]] bool copy_fragment(Receive& receive, std::size_t& budget) const noexcept;
  void end(Receive& receive, Failure failure) noexcept;
  void acknowledge(const ShmPeer& from, const Incoming& message) const noexcept;

  int rank_;
  std::span<ShmPeer> peers_;
  std::size_t next_other_ = 0;
  bool may_sleep_;
  Pool<Receive> receives_;
  Pool<Unexpected> unexpected_;
  std::vector<ShmPeer*> listening_;
  Fifo<Receive> copying_;  // matched, and too large to be copied at once
};

}  // namespace rondo::transport::shm_link
