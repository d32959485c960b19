#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "links/link.hpp"
#include "links/shm/fifo.hpp"
#include "links/shm/ring.hpp"
#include "shm/memory.hpp"

namespace rondo::transport::links::shm {

struct Peer;

/// Why a transfer failed.
enum class Failure : std::int32_t {
  none = 0,
  truncated = rondo_error_truncated,
  withdrawn = 1,
  cancelled,
  no_memory,
  unreachable
};

/// A message that has come, or of which there is news.
struct Message {
  std::uint64_t tag = 0;
  std::size_t bytes = 0;
  const std::byte* source = nullptr;  ///< where this rank can read it, unless it flows
  bool flows = false;                 ///< has to be asked for, and comes in chunks
  Parcel* parcel = nullptr;           ///< null: nobody waits for it to be taken
  Transfer* own_send = nullptr;       ///< of a message to oneself that is taken from where it lies
};

/// A message that came before its receive. If it was inlined, its source is `copy`.
struct Unexpected {
  Message message = {};
  std::array<std::byte, inline_bytes> copy{};
  Unexpected* next = nullptr;
};

/// A posted receive.
struct Receive {
  Transfer* transfer = nullptr;
  Peer* from = nullptr;
  std::uint64_t tag = 0;
  std::span<std::byte> room = {};
  Message message = {};  ///< once it is matched
  std::size_t copied = 0;
  Receive* next = nullptr;
};

/// A posted send that has not been finished at once: it waits for a slot, or for the receiver.
struct Send {
  Transfer* transfer = nullptr;  ///< null: done for its poster, or withdrawn
  Peer* to = nullptr;
  std::uint64_t tag = 0;
  std::span<const std::byte> data = {};
  Parcel* parcel = nullptr;
  std::byte* stream = nullptr;  ///< where an ordinary message flows through
  std::uint64_t filled = 0;     ///< chunks
  Send* next = nullptr;
};

/// What there is between this rank and one other.
struct Peer {
  int rank = 0;
  transport::shm::RankMemory* memory = nullptr;  ///< null: on another node

  RingWriter out = {};       ///< attached on first use
  Fifo<Send> waiting = {};   ///< for a free slot, in the order posted
  bool has_waiting = false;  ///< is in the sender's list of such peers

  RingReader in = {};                ///< attached once the peer has made it
  Fifo<Receive> posted = {};         ///< not matched, in the order posted
  Fifo<Unexpected> unexpected = {};  ///< not matched, in the order sent
  bool listened_to = false;          ///< is in the receiver's list of such peers
};

/// The beginning of this rank's table of rings in its control segment; makes it unless it is there.
[[nodiscard]] RingOffset* make_rings(transport::shm::RankMemory& mine, std::size_t ranks);

/// A new ring to `rank`, shown to it. Throws Error(out_of_memory).
[[nodiscard]] Ring& make_ring(transport::shm::RankMemory& mine, RingOffset* rings, int rank);

/// The ring from `peer` to `rank`; null as long as the peer has not made it.
[[nodiscard]] Ring* find_ring(const Peer& peer, int rank) noexcept;

/// Ends a transfer: nothing refers to it any more.
inline void finish(Transfer& transfer, Failure failure) noexcept {
  transfer.state = failure == Failure::none ? rondo_transfer_done : rondo_transfer_failed;
  transfer.error = static_cast<std::int32_t>(failure);
  transfer.handle = nullptr;
}

}  // namespace rondo::transport::links::shm
