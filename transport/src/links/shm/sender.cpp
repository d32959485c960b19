// How messages leave for other ranks of the node.
//
// Small ones are copied at once, into their slot or an eager buffer, so that their sends are done.
// Large ones are announced and copied once the receiver is ready for them. A send that finds the
// ring full waits in a queue of its peer, behind those posted before it.

#include "links/shm/peer.hpp"

#include <algorithm>
#include <cstring>
#include <new>

#include <rondo/transport/error.hpp>

namespace rondo::transport::shm_link {
namespace {

// So many are made at once, because memory grows by whole pages anyway.
constexpr std::size_t states_at_once = 32;
constexpr std::size_t eager_at_once = 8;
// Buffers of one rank, for all its peers together.
constexpr std::size_t most_eager = 64;
// Bounce buffers that may be in use before a peer gets its second; and those of one peer.
constexpr std::size_t most_bounces = 16;
constexpr std::size_t most_bounces_of_peer = 4;
// Eager buffers that are looked at for a free one: a message that finds none is announced instead.
constexpr int eager_tries = 4;

std::span<const std::byte> bytes_of(const Announcement& announcement) noexcept {
  return std::as_bytes(std::span(&announcement, 1));
}

void withdraw(Send& send) noexcept {
  // Later writes of the poster into its memory come after the mark: a receiver that has read any of
  // them finds the mark when it looks once more at the end.
  send.state->withdrawn.store(1, std::memory_order_relaxed);
  std::atomic_thread_fence(std::memory_order_seq_cst);
  send.transfer = nullptr;
}

}  // namespace

// A state is constructed anew, because its words still tell about its last message.
MessageState& SendMemory::acquire_state() {
  if (states_.empty()) make_states();
  MessageState& state = *states_.back();
  states_.pop_back();
  return *::new (&state) MessageState;
}

void SendMemory::make_states() {
  states_.reserve(states_made_ + states_at_once);
  const std::uint64_t offset = shm::append(mine_->control(), states_at_once * sizeof(MessageState));
  std::byte* base = mine_->control().base() + offset;
  for (std::size_t i = 0; i < states_at_once; ++i) {
    states_.push_back(::new (base + i * sizeof(MessageState)) MessageState);
  }
  states_made_ += states_at_once;
}

EagerBuffer* SendMemory::acquire_eager() {
  EagerBuffer* buffer = next_eager();
  if (buffer == nullptr && eager_.size() < most_eager) {
    make_eager();
    buffer = next_eager();
  }
  // Relaxed: the slot that announces the buffer makes it visible.
  if (buffer != nullptr) buffer->state.consumed.store(0, std::memory_order_relaxed);
  return buffer;
}

// Buffers are used in turn, so that the one that is tried first was filled longest ago.
EagerBuffer* SendMemory::next_eager() noexcept {
  for (int i = 0; i < eager_tries && !eager_.empty(); ++i) {
    EagerBuffer* buffer = eager_[next_eager_];
    next_eager_ = (next_eager_ + 1) % eager_.size();
    // Acquire: the receiver's reads of the last message come before the next is written.
    if (buffer->state.consumed.load(std::memory_order_acquire) != 0) return buffer;
  }
  return nullptr;
}

void SendMemory::make_eager() {
  const std::uint64_t offset = shm::append(mine_->control(), eager_at_once * sizeof(EagerBuffer));
  std::byte* base = mine_->control().base() + offset;
  next_eager_ = eager_.size();
  for (std::size_t i = 0; i < eager_at_once; ++i) {
    auto* buffer = ::new (base + i * sizeof(EagerBuffer)) EagerBuffer;
    buffer->state.consumed.store(1, std::memory_order_relaxed);
    eager_.push_back(buffer);
  }
}

// A peer that computes, or has died, keeps its buffers: it may not hold up messages to others.
bool SendMemory::may_have_bounce(std::size_t of_peer) const noexcept {
  const std::size_t in_use = bounces_made_ - bounces_.size();
  return of_peer == 0 || (of_peer < most_bounces_of_peer && in_use < most_bounces);
}

std::byte* SendMemory::acquire_bounce(std::size_t of_peer) {
  if (!may_have_bounce(of_peer)) return nullptr;
  if (bounces_.empty()) {
    bounces_.reserve(bounces_made_ + 1);
    const std::uint64_t offset = shm::append(mine_->control(), bounce_bytes);
    bounces_made_ += 1;
    return mine_->control().base() + offset;
  }
  std::byte* bounce = bounces_.back();
  bounces_.pop_back();
  return bounce;
}

std::uint64_t SendMemory::offset_of(const void* thing) const noexcept {
  return static_cast<std::uint64_t>(static_cast<const std::byte*>(thing) - mine_->control().base());
}

// Receivers that still read from this rank's memory find the mark afterwards.
Sender::~Sender() {
  while (!announced_.empty()) {
    if (Send& send = announced_.pop(); send.transfer != nullptr) withdraw(send);
  }
}

// Sends at once if it can. Else the send waits behind all that wait for this peer, to stay in
// order.
void Sender::post(ShmPeer& to, std::uint64_t tag, std::span<const std::byte> data,
                  Transfer& transfer) {
  if (to.waiting.empty() && try_push(to, tag, data, transfer)) return;
  Send& send = sends_.acquire();
  send = {.transfer = &transfer, .to = &to, .tag = tag, .data = data};
  transfer.handle = &send;
  to.waiting.push(send);
  if (to.has_waiting) return;
  to.has_waiting = true;
  with_waiting_.push_back(&to);
}

// As push(), but lack of shared memory fails the transfer.
bool Sender::try_push(ShmPeer& to, std::uint64_t tag, std::span<const std::byte> data,
                      Transfer& transfer) {
  try {
    return push(to, tag, data, transfer);
  } catch (const Error&) {
    finish(transfer, Failure::no_memory);
    return true;
  }
}

// False if there is no slot for it.
bool Sender::push(ShmPeer& to, std::uint64_t tag, std::span<const std::byte> data,
                  Transfer& transfer) {
  if (!to.out.attached()) to.out = RingWriter(make_ring(*mine_, rings_, to.rank));
  if (to.out.full()) return false;
  // Messages that a crowded receiver does not ask for stay here: their sends are not done, and so
  // the memory of both sides is bounded by what this rank's caller has pending.
  const bool copied = data.size() <= eager_bytes && !to.out.crowded();
  const bool inlined = copied && data.size() <= ring_payload_bytes;
  EagerBuffer* buffer = copied && !inlined ? memory_.acquire_eager() : nullptr;
  if (inlined) {
    to.out.push(SlotKind::inlined, tag, data);
    finish(transfer, Failure::none);
  } else if (buffer != nullptr) {
    std::memcpy(buffer->message.data(), data.data(), data.size());
    const Announcement announcement{.bytes = data.size(), .state = memory_.offset_of(buffer)};
    to.out.push(SlotKind::eager, tag, bytes_of(announcement));
    finish(transfer, Failure::none);
  } else {
    announce(to, tag, data, transfer);
  }
  notify(to, may_sleep_);
  return true;
}

// Tells the receiver where the message is; step() copies it or waits until it has been read.
void Sender::announce(ShmPeer& to, std::uint64_t tag, std::span<const std::byte> data,
                      Transfer& transfer) {
  MessageState& state = memory_.acquire_state();
  Send& send = sends_.acquire();
  send = {.transfer = &transfer, .to = &to, .tag = tag, .data = data, .state = &state};
  transfer.handle = &send;
  announced_.push(send);
  const shm::Segment& arena = mine_->arena();
  const auto offset = static_cast<std::uint64_t>(reinterpret_cast<std::uintptr_t>(data.data()) -
                                                 reinterpret_cast<std::uintptr_t>(arena.base()));
  const bool in_arena = offset < arena.size() && data.size() <= arena.size() - offset;
  const Announcement announcement{
      .bytes = data.size(), .state = memory_.offset_of(&state), .arena = in_arena ? offset : 0};
  to.out.push(in_arena ? SlotKind::arena : SlotKind::ordinary, tag, bytes_of(announcement));
}

// A receiver that makes room, asks for a message or has consumed one is noticed here.
bool Sender::progress(std::size_t& budget) {
  bool moved = !with_waiting_.empty() && send_waiting();
  if (!announced_.empty()) {
    announced_.rotate([&](Send& send) { return step(send, budget, moved); },
                      [&] { return budget == 0; });
  }
  return moved;
}

// Pushes what has waited for free slots.
bool Sender::send_waiting() {
  bool moved = false;
  std::erase_if(with_waiting_, [&](ShmPeer* to) {
    while (!to->waiting.empty()) {
      Send& send = *to->waiting.front();
      if (!try_push(*to, send.tag, send.data, *send.transfer)) return false;
      sends_.release(to->waiting.pop());
      moved = true;
    }
    to->has_waiting = false;
    return true;
  });
  return moved;
}

// True when the send is over, and its state and bounce buffer are free.
bool Sender::step(Send& send, std::size_t& budget, bool& moved) {
  MessageState& state = *send.state;
  // Acquire: the receiver's reads come before the memory is written again.
  if (state.consumed.load(std::memory_order_acquire) == 0) {
    // Relaxed: it says nothing but itself.
    const bool requested = state.requested.load(std::memory_order_relaxed) != 0;
    if (requested && send.transfer != nullptr) moved = try_fill(send, budget) || moved;
    return false;
  }
  if (send.transfer != nullptr) finish(*send.transfer, Failure::none);
  if (send.bounce != nullptr) {
    memory_.release(send.bounce);
    send.to->bounces -= 1;
  }
  memory_.release(state);
  sends_.release(send);
  moved = true;
  return true;
}

// As fill(), but lack of shared memory fails the transfer.
bool Sender::try_fill(Send& send, std::size_t& budget) {
  try {
    return fill(send, budget);
  } catch (const Error&) {
    finish(*send.transfer, Failure::no_memory);
    send.transfer = nullptr;
    withdraw(send);
    return true;
  }
}

// Copies the next fragment of an ordinary message, if its bounce buffer has room. True if it did.
bool Sender::fill(Send& send, std::size_t& budget) {
  MessageState& state = *send.state;
  if (send.bounce == nullptr) {
    send.bounce = memory_.acquire_bounce(send.to->bounces);
    if (send.bounce == nullptr) return false;
    send.to->bounces += 1;
    // Relaxed: the first fragment's release makes it visible.
    state.bounce.store(memory_.offset_of(send.bounce), std::memory_order_relaxed);
  }
  // Acquire: the receiver's reads of a fragment come before the stores that fill it again.
  if (send.filled - state.emptied.load(std::memory_order_acquire) == bounce_fragments) return false;
  const std::size_t begin = send.filled * fragment_bytes;
  const std::size_t bytes = std::min(fragment_bytes, send.data.size() - begin);
  std::memcpy(send.bounce + send.filled % bounce_fragments * fragment_bytes,
              send.data.data() + begin, bytes);
  budget -= std::min(budget, bytes);
  send.filled += 1;
  // Release: a receiver that counts the fragment sees its bytes.
  state.filled.store(send.filled, std::memory_order_release);
  notify(*send.to, may_sleep_);
  if (begin + bytes == send.data.size()) {
    finish(*send.transfer, Failure::none);
    send.transfer = nullptr;
  }
  return true;
}

// An announced message is withdrawn: its state stays in use until the receiver has acknowledged it.
// One that waits for a slot was never seen by the receiver.
void Sender::cancel(Transfer& transfer) noexcept {
  auto* send = static_cast<Send*>(transfer.handle);
  if (send->state != nullptr) {
    withdraw(*send);
  } else {
    send->to->waiting.extract([&](const Send& other) { return &other == send; });
    sends_.release(*send);
  }
  finish(transfer, Failure::cancelled);
}

}  // namespace rondo::transport::shm_link
