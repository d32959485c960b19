#include <chrono>

#include <rdma/fi_cm.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>

#include "links/ofi/errors.hpp"
#include "links/ofi/link.hpp"

namespace rondo::transport::ofi {

void Link::cancel(rondo_transfer& transfer) noexcept {
  if (transfer.state != rondo_transfer_pending) return;
  Message& message = *static_cast<Message*>(transfer.handle);
  if (message.state == Message::State::queued) {
    unqueue(message);
    end(message, FI_ECANCELED, 0);
    return;
  }
  // A message that the peer has begun to take cannot be had back but by closing the endpoint:
  // until then libfabric may touch its memory.
  if (!take_back(message, transfer)) lose_everything(error_link_lost);
}

/// True when libfabric has given `message` up or completed it, within a moment.
bool Link::take_back(Message& message, const rondo_transfer& transfer) noexcept {
  using Clock = std::chrono::steady_clock;
  constexpr std::chrono::milliseconds moment{20};
  message.cancelled = true;
  fi_cancel(&endpoint_.ep->fid, &message.context);
  const auto deadline = Clock::now() + moment;
  while (transfer.state == rondo_transfer_pending) {
    progress();
    if (transfer.state == rondo_transfer_pending && Clock::now() > deadline) return false;
  }
  return true;
}

void Link::unqueue(Message& message) noexcept {
  Peer& peer = peers_[static_cast<std::size_t>(message.peer)];
  (message.kind == Message::Kind::send ? peer.waiting : waiting_recvs_).remove(message);
}

void Link::lose_peer(std::int32_t rank, std::int32_t error) noexcept {
  Peer& peer = peers_[static_cast<std::size_t>(rank)];
  if (peer.error != 0) return;
  peer.error = error;
  messages_.for_each([&](Message& message) {
    if (message.peer != rank) return;
    if (message.state == Message::State::queued) {
      unqueue(message);
      end(message, error, 0);
    } else if (message.kind == Message::Kind::recv) {
      // It fails once libfabric has given it back. Posted sends fail by themselves.
      message.cancelled = true;
      fi_cancel(&endpoint_.ep->fid, &message.context);
    }
  });
}

void Link::lose_everything(std::int32_t error) noexcept {
  if (error_ != 0) return;
  error_ = error;
  // Registrations bound to the endpoint would keep it from closing; others are needed until then.
  if (endpoint_.wants(FI_MR_ENDPOINT)) release_memory();
  endpoint_.ep.reset();
  while (!waiting_recvs_.empty()) waiting_recvs_.pop();
  for (const std::int32_t rank : listed_) {
    Peer& peer = peers_[static_cast<std::size_t>(rank)];
    while (!peer.waiting.empty()) peer.waiting.pop();
    peer.is_listed = false;
  }
  listed_.clear();
  messages_.for_each([&](Message& message) { end(message, error, 0); });
}

void Link::release_memory() noexcept {
  messages_.for_each([](Message& message) { Memory::drop(message.lease); });
  memory_.clear();
}

}  // namespace rondo::transport::ofi
