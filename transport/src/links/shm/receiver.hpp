#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "links/shm/peer.hpp"

namespace rondo::transport::shm_link {

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
