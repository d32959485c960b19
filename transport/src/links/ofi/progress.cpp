#include <chrono>
#include <cstddef>

#include <rdma/fi_cm.h>
#include <rdma/fi_errno.h>

#include "links/ofi/errors.hpp"
#include "links/ofi/link.hpp"

namespace rondo::transport::ofi {

bool Link::progress() noexcept {
  if (error_ != 0) return false;
  const bool completed = read_completions();
  const bool taken = retry_all();
  return completed || taken;
}

/// Bounded, so that one call stays short.
bool Link::read_completions() noexcept {
  constexpr int rounds = 4;
  constexpr std::size_t batch = 16;
  fi_cq_msg_entry entries[batch];
  bool moved = false;
  for (int round = 0; round < rounds && error_ == 0; ++round) {
    const std::int64_t count = fi_cq_read(endpoint_.cq.get(), entries, batch);
    if (count == 0 || count == -FI_EAGAIN) break;
    moved = true;
    if (count == -FI_EAVAIL) {
      read_error();
    } else if (count < 0) {
      lose_everything(static_cast<std::int32_t>(-count));
    } else {
      for (std::int64_t i = 0; i < count; ++i) complete(entries[i].op_context, entries[i].len);
      if (count < static_cast<std::int64_t>(batch)) break;
    }
  }
  return moved;
}

void Link::complete(void* context, std::size_t received) noexcept {
  Message& message = *static_cast<Message*>(context);
  if (message.state == Message::State::abandoned) return messages_.give_back(message);
  if (message.kind == Message::Kind::send) return end(message, 0, message.bytes);
  end(message, received > message.bytes ? rondo_error_truncated : 0, received);
}

void Link::read_error() noexcept {
  fi_cq_err_entry entry{};
  if (fi_cq_readerr(endpoint_.cq.get(), &entry, /*flags=*/0) <= 0) return;
  // Errors of a provider's own messages come without a context of ours.
  if (!messages_.owns(entry.op_context)) return;
  Message& message = *static_cast<Message*>(entry.op_context);
  if (message.state == Message::State::posted) fail(message, entry.err);
  if (message.state == Message::State::abandoned) messages_.give_back(message);
}

void Link::fail(Message& message, std::int32_t error) noexcept {
  const std::int32_t rank = message.peer;
  const std::int32_t before = peers_[static_cast<std::size_t>(rank)].error;
  if (message.cancelled) return end(message, before != 0 ? before : error, 0);
  // Ranks differ; the connection stands.
  if (error == FI_ETRUNC) return end(message, rondo_error_truncated, 0);
  // Cancelled by the provider: its connection went.
  if (error == FI_ECANCELED) error = error_peer_lost;
  end(message, error, 0);
  lose_peer(rank, error);
}

bool Link::retry_all() noexcept {
  bool moved = retry(waiting_recvs_);
  for (std::size_t i = 0; i < listed_.size();) {
    Peer& peer = peers_[static_cast<std::size_t>(listed_[i])];
    if (retry(peer.waiting)) moved = true;
    if (!peer.waiting.empty()) {
      ++i;
      continue;
    }
    peer.is_listed = false;
    listed_[i] = listed_.back();
    listed_.pop_back();
  }
  return moved;
}

bool Link::retry(MessageQueue& queue) noexcept {
  bool moved = false;
  while (!queue.empty()) {
    Message& message = queue.front();
    queue.pop();
    if (hand_over(message) == Taken::later) {
      queue.push_front(message);
      break;
    }
    moved = true;
  }
  return moved;
}

/// Tells the caller how its transfer went; libfabric may still refer to the message.
void Link::answer(Message& message, std::int32_t error, std::size_t bytes) noexcept {
  if (message.transfer == nullptr) return;
  rondo_transfer& transfer = *message.transfer;
  message.transfer = nullptr;
  transfer = {.state = error == 0 ? rondo_transfer_done : rondo_transfer_failed,
              .error = error,
              .bytes = error == 0 ? bytes : 0,
              .handle = nullptr,
              .context = nullptr};
}

void Link::end(Message& message, std::int32_t error, std::size_t bytes) noexcept {
  if (message.kind == Message::Kind::send) --sends_;
  Memory::drop(message.lease);
  answer(message, error, bytes);
  const bool received = error == 0 || error == rondo_error_truncated;
  if (message.discards && received && error_ == 0) return post(message);
  messages_.give_back(message);
}

void Link::drain(int timeout_ms) noexcept {
  const auto deadline = Clock::now() + std::chrono::milliseconds(timeout_ms);
  while (sends_ > 0 && error_ == 0 && Clock::now() < deadline) progress();
}

}  // namespace rondo::transport::ofi
