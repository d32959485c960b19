// How messages are given up, one by one or with their peer.
//
// A message that still waits here is dropped, and a receive that has no message yet is taken back
// by libfabric. But no provider takes back a send, nor a message that is coming in: libfabric
// refers to its memory until the peer has done its part, and the peer may never do it. Such a
// message gets a moment to end by itself. Then the connection to its peer is closed, which puts
// the memory out of libfabric's reach, costs what else was under way with this peer, and leaves
// all other peers alone. Providers without connections of their own leave only the endpoint to be
// closed, and with it every peer.

#include <algorithm>
#include <chrono>

#include <rdma/fi_cm.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>

#include "links/ofi/errors.hpp"
#include "links/ofi/link.hpp"

namespace rondo::transport::ofi {
namespace {

// How long a cancelled message may take to end by itself before its connection is closed. The peer
// needs processor time for its part. 100 ms were too short on few cores with other work: the
// connection was closed although the peer was about to answer.
constexpr std::chrono::milliseconds cancel_patience{500};

}  // namespace

void Link::cancel(rondo_transfer& transfer) noexcept {
  if (transfer.state != rondo_transfer_pending) return;
  Message& message = *static_cast<Message*>(transfer.handle);
  if (message.state == Message::State::queued) {
    unqueue(message);
    end(message, FI_ECANCELED, 0);
    return;
  }
  if (take_back(message, transfer)) return;
  if (!cut(message.peer)) lose_everything(error_link_lost);
}

/// True when libfabric has given `message` up or completed it, within a moment.
bool Link::take_back(Message& message, const rondo_transfer& transfer) noexcept {
  message.cancelled = true;
  fi_cancel(&endpoint_.ep->fid, &message.context);
  const auto deadline = patience();
  while (transfer.state == rondo_transfer_pending) {
    progress();
    if (transfer.state == rondo_transfer_pending && Clock::now() > deadline) return false;
  }
  return true;
}

/// How long a cancel may wait. An operation that is given up cancels many messages, maybe to many
/// peers that do not answer: those that follow each other share one cancel_patience, and have a
/// little each for what needs no peer.
Link::Clock::time_point Link::patience() noexcept {
  constexpr std::chrono::milliseconds little{1};
  constexpr std::chrono::seconds lull{1};
  const auto now = Clock::now();
  if (now > patience_ends_ + lull) patience_ends_ = now + cancel_patience;
  return std::max(patience_ends_, now + little);
}

/// Closes the connection to `rank` and ends all messages to and from it. False when the provider
/// has no connections that could be closed.
bool Link::cut(std::int32_t rank) noexcept {
  Peer& peer = peers_[static_cast<std::size_t>(rank)];
  if (!peer.is_cut) {
    if (!endpoint_.closes_connections()) return false;
    if (fi_av_remove(endpoint_.av.get(), &peer.address, 1, /*flags=*/0) != 0) return false;
    peer.is_cut = true;
  }
  lose_peer(rank, error_peer_cut);
  // libfabric reports most of what has ended with the connection.
  constexpr int rounds = 100;
  for (int round = 0; round < rounds && has_posted(rank); ++round) {
    if (!read_completions()) break;
  }
  // But a send that the peer should have fetched is forgotten with the connection.
  messages_.for_each([&](Message& message) {
    if (message.peer == rank && message.state == Message::State::posted) {
      abandon(message, peer.error);
    }
  });
  return true;
}

bool Link::has_posted(std::int32_t rank) noexcept {
  bool found = false;
  messages_.for_each([&](const Message& message) {
    found = found || (message.peer == rank && message.state == Message::State::posted);
  });
  return found;
}

void Link::abandon(Message& message, std::int32_t error) noexcept {
  if (message.kind == Message::Kind::send) --sends_;
  Memory::drop(message.lease);
  answer(message, error, 0);
  message.state = Message::State::abandoned;
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
    } else if (message.state == Message::State::posted && message.kind == Message::Kind::recv) {
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
  messages_.for_each([&](Message& message) {
    if (message.state == Message::State::abandoned) return messages_.give_back(message);
    end(message, error, 0);
  });
}

void Link::release_memory() noexcept {
  messages_.for_each([](Message& message) { Memory::drop(message.lease); });
  memory_.clear();
}

}  // namespace rondo::transport::ofi
