// The link between ranks of one node: a sending and a receiving half over the same peers.

#include "message/link.hpp"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "links/shm/peer.hpp"
#include "links/shm/ring.hpp"

namespace rondo::transport::shm_link {
namespace {

// Bytes of large messages that one call of progress() copies.
constexpr std::size_t bytes_per_progress = fragment_bytes;

std::vector<ShmPeer> peers_of(std::span<shm::RankMemory* const> memories) {
  std::vector<ShmPeer> peers(memories.size());
  for (std::size_t r = 0; r < peers.size(); ++r) {
    peers[r].rank = static_cast<int>(r);
    peers[r].memory = memories[r];
  }
  return peers;
}

/// Messages between the ranks of one node, and to oneself, over shared memory.
class ShmLink final : public Link {
 public:
  ShmLink(int rank, std::span<shm::RankMemory* const> memories, bool may_sleep);

  void post_send(int peer, std::uint64_t tag, std::span<const std::byte> data,
                 Transfer& transfer) override;
  void post_recv(int peer, std::uint64_t tag, std::span<std::byte> data,
                 Transfer& transfer) override;
  bool progress() override;
  void cancel(Transfer& transfer) override;

  /// Nothing: whoever waits sleeps on its doorbell, which peers ring.
  [[nodiscard]] std::optional<int> arm() override { return std::nullopt; }
  [[nodiscard]] bool rings_doorbell() const noexcept override { return true; }
  /// Nothing: the ranks of a node have each other's memory already.
  [[nodiscard]] std::string address() const override { return {}; }
  [[nodiscard]] std::string route() const override;
  [[nodiscard]] std::string error_text(const Transfer& transfer) const override;

 private:
  [[nodiscard]] ShmPeer& own() noexcept { return peers_[rank_]; }

  std::size_t rank_;
  std::vector<ShmPeer> peers_;
  Sender sender_;
  Receiver receiver_;
};

}  // namespace

ShmLink::ShmLink(int rank, std::span<shm::RankMemory* const> memories, bool may_sleep)
    : rank_(static_cast<std::size_t>(rank)),
      peers_(peers_of(memories)),
      sender_(*own().memory, make_rings(*own().memory, peers_.size()), may_sleep),
      receiver_(rank, peers_, may_sleep) {}

// `context` tells cancel() which half the transfer belongs to.
void ShmLink::post_send(int peer, std::uint64_t tag, std::span<const std::byte> data,
                        Transfer& transfer) {
  ShmPeer& to = peers_[static_cast<std::size_t>(peer)];
  transfer.state = TransferState::pending;
  transfer.bytes = data.size();
  transfer.handle = nullptr;
  if (&to == &own()) {
    transfer.context = &receiver_;
    receiver_.send_own(to, tag, data, transfer);
  } else if (to.memory != nullptr) {
    transfer.context = &sender_;
    sender_.post(to, tag, data, transfer);
  } else {
    finish(transfer, Failure::unreachable);
  }
}

void ShmLink::post_recv(int peer, std::uint64_t tag, std::span<std::byte> data,
                        Transfer& transfer) {
  ShmPeer& from = peers_[static_cast<std::size_t>(peer)];
  transfer.state = TransferState::pending;
  transfer.bytes = 0;
  if (from.memory == nullptr) return finish(transfer, Failure::unreachable);
  transfer.context = &receiver_;
  receiver_.post(from, tag, data, transfer);
}

bool ShmLink::progress() {
  // Both halves have their share: neither starves the other.
  std::size_t sends = bytes_per_progress;
  std::size_t receives = bytes_per_progress;
  const bool received = receiver_.progress(receives);
  return sender_.progress(sends) || received;
}

void ShmLink::cancel(Transfer& transfer) {
  if (!transfer.pending()) return;
  if (transfer.context == &sender_) {
    sender_.cancel(transfer);
  } else {
    receiver_.cancel(own(), transfer);
  }
}

std::string ShmLink::route() const { return "shm: memory that all ranks of the node share"; }

std::string ShmLink::error_text(const Transfer& transfer) const {
  switch (static_cast<Failure>(transfer.error)) {
    case Failure::none:
      return "no error";
    case Failure::truncated:
      return "the message is longer than the memory given for it";
    case Failure::withdrawn:
      return "its sender has cancelled the message";
    case Failure::cancelled:
      return "it was cancelled";
    case Failure::no_memory:
      return "there is no shared memory left for the message";
    case Failure::unreachable:
      return "the rank is on another node";
  }
  return "unknown error";
}

}  // namespace rondo::transport::shm_link

namespace rondo::transport {

std::unique_ptr<Link> open_shm_link(int rank, std::vector<shm::RankMemory*> memories,
                                    bool may_sleep) {
  return std::make_unique<shm_link::ShmLink>(rank, memories, may_sleep);
}

}  // namespace rondo::transport
