#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "links/shm/peer.hpp"
#include "links/shm/ring.hpp"
#include "shm/memory.hpp"

namespace rondo::transport::shm_link {

/// What one rank's sends need in its control segment: states of messages, eager buffers and bounce
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

  /// bounce_bytes bytes; null when all bounce buffers are in use. Throws Error(out_of_memory).
  [[nodiscard]] std::byte* acquire_bounce();
  void release(std::byte* bounce) noexcept { bounces_.push_back(bounce); }

  /// Where in the control segment something of it lies.
  [[nodiscard]] std::uint64_t offset_of(const void* thing) const noexcept;

 private:
  void make_states();
  void make_eager();
  [[nodiscard]] EagerBuffer* next_eager() noexcept;

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
  /// Withdraws what nobody has received.
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
  [[nodiscard]] bool fill(Send& send, std::size_t& budget);

  shm::RankMemory* mine_;
  RingOffset* rings_;
  SendMemory memory_;
  Pool<Send> sends_;
  std::vector<ShmPeer*> with_waiting_;
  Fifo<Send> announced_;
  bool may_sleep_;
};

}  // namespace rondo::transport::shm_link
