#include "links/shm/link.hpp"

namespace rondo::transport::links::shm {
namespace {

// Bytes of large messages that one call of progress() copies.
constexpr std::size_t bytes_per_progress = chunk_bytes;

std::vector<Peer> peers_of(std::span<transport::shm::RankMemory* const> memories) {
  std::vector<Peer> peers(memories.size());
  for (std::size_t r = 0; r < peers.size(); ++r) {
    peers[r].rank = static_cast<int>(r);
    peers[r].memory = memories[r];
  }
  return peers;
}

}  // namespace

ShmLink::ShmLink(int rank, std::span<transport::shm::RankMemory* const> memories, bool may_sleep)
    : rank_(static_cast<std::size_t>(rank)),
      peers_(peers_of(memories)),
      sender_(*own().memory, make_rings(*own().memory, peers_.size()), may_sleep),
      receiver_(rank, peers_, may_sleep) {}

void ShmLink::post_send(int peer, std::uint64_t tag, std::span<const std::byte> data,
                        Transfer& transfer) {
  Peer& to = peers_[static_cast<std::size_t>(peer)];
  transfer.state = rondo_transfer_pending;
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
  Peer& from = peers_[static_cast<std::size_t>(peer)];
  transfer.state = rondo_transfer_pending;
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

void ShmLink::connect(int /*rank*/, const std::string& /*address*/) {}

void ShmLink::add_memory(std::span<std::byte> /*memory*/) {}

std::string ShmLink::route() const { return "shm: memory that all ranks of the node share"; }

std::string ShmLink::error_text(const Transfer& transfer) const {
  switch (static_cast<Failure>(transfer.error)) {
    case Failure::none:
      return "no error";
    case Failure::truncated:
      return "the message is longer than the memory given for it";
    case Failure::withdrawn:
      return "its sender has taken the message back";
    case Failure::cancelled:
      return "it was cancelled";
    case Failure::no_memory:
      return "there is no shared memory left for the message";
    case Failure::unreachable:
      return "the rank is on another node";
  }
  return "unknown error";
}

}  // namespace rondo::transport::links::shm
