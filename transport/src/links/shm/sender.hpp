#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "links/shm/peer.hpp"
#include "links/shm/supply.hpp"

namespace rondo::transport::links::shm {

/// The sending half of a link, for messages to other ranks.
///
/// Up to 56 bytes travel in their slot, up to 8 KiB in a box behind it: such sends are done as
/// soon as there is a free slot. A larger message is announced, and stays where it is until the
/// receiver has matched it: the receiver reads it out of the sender's arena; or, if it lies in
/// ordinary memory, asks for it, and it flows through a stream of four chunks.
class Sender {
 public:
  Sender(transport::shm::RankMemory& mine, RingOffset* rings, bool peers_sleep)
      : mine_(&mine), rings_(rings), supply_(mine), peers_sleep_(peers_sleep) {}
  Sender(const Sender&) = delete;
  Sender& operator=(const Sender&) = delete;
  /// Withdraws what nobody has taken.
  ~Sender();

  void post(Peer& to, std::uint64_t tag, std::span<const std::byte> data, Transfer& transfer);
  /// Copies at most `budget` bytes, which it makes less. True if anything moved.
  bool progress(std::size_t& budget);
  void cancel(Transfer& transfer) noexcept;

 private:
  [[nodiscard]] bool put(Peer& to, std::uint64_t tag, std::span<const std::byte> data,
                         Transfer& transfer);
  [[nodiscard]] bool put_if_memory(Peer& to, std::uint64_t tag, std::span<const std::byte> data,
                                   Transfer& transfer);
  void offer(Peer& to, std::uint64_t tag, std::span<const std::byte> data, Transfer& transfer);
  bool send_waiting();
  [[nodiscard]] bool step(Send& send, std::size_t& budget, bool& moved);
  [[nodiscard]] bool fill(Send& send, std::size_t& budget);
  void published(const Peer& to) const noexcept;

  transport::shm::RankMemory* mine_;
  RingOffset* rings_;
  Supply supply_;
  Pool<Send> sends_;
  std::vector<Peer*> with_waiting_;
  Fifo<Send> offered_;
  bool peers_sleep_;
};

}  // namespace rondo::transport::links::shm
