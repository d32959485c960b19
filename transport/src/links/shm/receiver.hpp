#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "links/shm/peer.hpp"

namespace rondo::transport::links::shm {

/// The receiving half of a link: matches messages with receives, and takes them.
///
/// A peer's ring is read while a receive from it waits for its message, and when it gets full. What
/// is not asked for yet is put aside: a small message as a copy, a larger one as its announcement.
/// When many are aside and still nobody asks for any, the rest stays in the ring and holds the
/// sender up. When very many are aside while others are asked for, the sender announces even small
/// ones: so a flood of messages is bounded by what its sender has pending.
class Receiver {
 public:
  /// `peers` is lent.
  Receiver(int rank, std::span<Peer> peers, bool peers_sleep)
      : rank_(rank), peers_(peers), peers_sleep_(peers_sleep) {}
  Receiver(const Receiver&) = delete;
  Receiver& operator=(const Receiver&) = delete;
  ~Receiver() = default;

  void post(Peer& from, std::uint64_t tag, std::span<std::byte> room, Transfer& transfer);
  /// A message of this rank to itself; `own` is the rank's own Peer.
  void send_own(Peer& own, std::uint64_t tag, std::span<const std::byte> data, Transfer& transfer);
  /// Copies at most `budget` bytes of large messages, which it makes less, and reads at most one
  /// lap of each ring. True if anything moved.
  bool progress(std::size_t& budget);
  /// A receive, or a send to oneself.
  void cancel(Peer& own, Transfer& transfer) noexcept;

 private:
  bool poll_asked();
  bool poll_others();
  [[nodiscard]] bool find_ring_of(Peer& from) const noexcept;
  bool read_ring(Peer& from);
  void take_front(Peer& from);
  void put_aside(Peer& from, const Message& message);
  void accept(Receive& receive, const Message& message);
  [[nodiscard]] bool step(Receive& receive, std::size_t& budget, bool& moved);
  void copy_tile(Receive& receive, std::size_t& budget) noexcept;
  [[nodiscard]] bool empty_chunk(Receive& receive, std::size_t& budget) const noexcept;
  void end(Receive& receive, Failure failure) noexcept;
  void acknowledge(const Peer& from, const Message& message) const noexcept;
  void published(const Peer& to) const noexcept;

  int rank_;
  std::span<Peer> peers_;
  std::size_t next_other_ = 0;
  bool peers_sleep_;
  Pool<Receive> receives_;
  Pool<Unexpected> asides_;
  std::vector<Peer*> listening_;
  Fifo<Receive> taking_;  // matched, and too large to be taken at once
};

}  // namespace rondo::transport::links::shm
