// How messages are given up, one by one or with their peer.
//
// A message that still waits here is dropped, and a receive that has no message yet is cancelled by
// libfabric. But no provider cancels a send, nor a message that is coming in: libfabric refers to
// its memory until the peer has done its part, and the peer may never do it. Such a message gets
// cancel_patience to end by itself. Then the connection to its peer is closed, which puts the
// memory out of libfabric's reach, costs what else was under way with this peer, and leaves all
// other peers alone. Providers without connections of their own leave only the endpoint to be
// closed, and with it every peer.

#include <algorithm>
#include <chrono>

#include <rdma/fi_cm.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>

#include "links/ofi/link.hpp"

namespace rondo::transport::ofi {
namespace {

// How long a cancelled message may take to end by itself before its connection is closed. The peer
// needs processor time for its part. 100 ms were too short on few cores with other work: the
// connection was closed although the peer was about to answer.
constexpr std::chrono::milliseconds cancel_patience{500};

}  // namespace

void OfiLink::cancel(Transfer& transfer) noexcept {
  if (!transfer.pending()) return;
  OfiMessage& message = *static_cast<OfiMessage*>(transfer.handle);
  if (message.state == OfiMessage::State::queued) {
    unqueue(message);
    end(message, FI_ECANCELED, 0);
    return;
  }
  if (cancel_alone(message, transfer)) return;
  if (!close_connection(message.peer)) fail_everything(error_link_lost);
}

/// True when libfabric has cancelled or completed `message` in time.
bool OfiLink::cancel_alone(OfiMessage& message, const Transfer& transfer) noexcept {
  message.cancelled = true;
  fi_cancel(&endpoint_.ep->fid, &message.context);
  const auto deadline = cancel_deadline();
  while (transfer.pending()) {
    progress();
    if (transfer.pending() && Clock::now() > deadline) return false;
  }
  return true;
}

/// How long a cancel may wait. An operation that is given up cancels many messages, maybe to many
/// peers that do not answer: those that follow each other share one cancel_patience, and have a
/// little each for what needs no peer.
OfiLink::Clock::time_point OfiLink::cancel_deadline() noexcept {
  constexpr std::chrono::milliseconds little{1};
  constexpr std::chrono::seconds lull{1};
  const auto now = Clock::now();
  if (now > cancel_ends_ + lull) cancel_ends_ = now + cancel_patience;
  return std::max(cancel_ends_, now + little);
}

/// Closes the connection to `rank` and ends all messages to and from it. False when the provider
/// has no connections that could be closed.
bool OfiLink::close_connection(std::int32_t rank) noexcept {
  OfiPeer& peer = peers_[static_cast<std::size_t>(rank)];
  if (!peer.is_closed) {
    if (!endpoint_.closes_connections()) return false;
    if (fi_av_remove(endpoint_.av.get(), &peer.address, 1, /*flags=*/0) != 0) return false;
    peer.is_closed = true;
  }
  fail_peer(rank, error_peer_closed);
  // libfabric reports most of what has ended with the connection.
  constexpr int rounds = 100;
  for (int round = 0; round < rounds && has_posted(rank); ++round) {
    if (!read_completions()) break;
  }
  // But it does not report a send that the peer should have fetched.
  messages_.for_each([&](OfiMessage& message) {
    if (message.peer == rank && message.state == OfiMessage::State::posted) {
      abandon(message, peer.error);
    }
  });
  return true;
}

bool OfiLink::has_posted(std::int32_t rank) noexcept {
  bool found = false;
  messages_.for_each([&](const OfiMessage& message) {
    found = found || (message.peer == rank && message.state == OfiMessage::State::posted);
  });
  return found;
}

// The caller is told the end, but libfabric may still report the message.
void OfiLink::abandon(OfiMessage& message, std::int32_t error) noexcept {
  if (message.kind == OfiMessage::Kind::send) --sends_;
  OfiMemory::drop(message.lease);
  answer(message, error, 0);
  message.state = OfiMessage::State::abandoned;
}

void OfiLink::unqueue(OfiMessage& message) noexcept {
  OfiPeer& peer = peers_[static_cast<std::size_t>(message.peer)];
  (message.kind == OfiMessage::Kind::send ? peer.waiting : waiting_recvs_)
      .extract([&](const OfiMessage& other) { return &other == &message; });
}

// Ends what is under way with one peer, as far as this rank can; everything later fails at once.
void OfiLink::fail_peer(std::int32_t rank, std::int32_t error) noexcept {
  OfiPeer& peer = peers_[static_cast<std::size_t>(rank)];
  if (peer.error != 0) return;
  peer.error = error;
  messages_.for_each([&](OfiMessage& message) {
    if (message.peer != rank) return;
    if (message.state == OfiMessage::State::queued) {
      unqueue(message);
      end(message, error, 0);
    } else if (message.state == OfiMessage::State::posted &&
               message.kind == OfiMessage::Kind::recv) {
      // It fails once libfabric has given it back. Posted sends fail by themselves.
      message.cancelled = true;
      fi_cancel(&endpoint_.ep->fid, &message.context);
    }
  });
}

// Closing the endpoint ends every message: libfabric touches no memory afterwards.
void OfiLink::fail_everything(std::int32_t error) noexcept {
  if (error_ != 0) return;
  error_ = error;
  // Registrations bound to the endpoint would keep it from closing; others are needed until then.
  if (endpoint_.wants(FI_MR_ENDPOINT)) release_memory();
  endpoint_.ep.reset();
  while (!waiting_recvs_.empty()) waiting_recvs_.pop();
  for (const std::int32_t rank : listed_) {
    OfiPeer& peer = peers_[static_cast<std::size_t>(rank)];
    while (!peer.waiting.empty()) peer.waiting.pop();
    peer.is_listed = false;
  }
  listed_.clear();
  messages_.for_each([&](OfiMessage& message) {
    if (message.state == OfiMessage::State::abandoned) return messages_.release(message);
    end(message, error, 0);
  });
}

void OfiLink::release_memory() noexcept {
  messages_.for_each([](OfiMessage& message) { OfiMemory::drop(message.lease); });
  memory_.clear();
}

}  // namespace rondo::transport::ofi
