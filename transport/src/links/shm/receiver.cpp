// How messages arrive from other ranks of the node, and from the rank itself.
//
// Messages and posted receives of one peer match by tag, each in its order. Small messages are
// copied when they are matched; large ones are then copied by progress(), bit by bit, so that one
// message does not hold up the others.

#include "links/shm/peer.hpp"

#include <algorithm>
#include <cstring>
#include <new>

namespace rondo::transport::shm_link {
namespace {

// Peers from which no receive is posted: how many are looked at in one call, and how many
// unexpected messages of one are kept.
constexpr std::size_t others_at_once = 8;
constexpr std::size_t most_from_others = 1024;
// How many unexpected messages of one peer are kept before it is told to keep the next itself.
constexpr std::size_t most_unexpected = 16'384;

bool withdrawn(const Incoming& message) noexcept {
  // Relaxed: the fence in still_valid() orders it where what was read depends on it.
  return message.state != nullptr && message.state->withdrawn.load(std::memory_order_relaxed) != 0;
}

// Was what has just been read of `message` the message?
bool still_valid(const Incoming& message) noexcept {
  if (message.state == nullptr) return true;
  // The data is read before the mark that says whether it was valid.
  std::atomic_thread_fence(std::memory_order_acquire);
  return !withdrawn(message);
}

// Reads what a slot tells; a message's source is its present address.
Incoming read(const ShmPeer& from, const RingReader::Front& front) noexcept {
  Incoming message{.tag = front.tag, .bytes = front.payload.size(), .source = front.payload.data()};
  if (front.kind == SlotKind::inlined) return message;
  Announcement announcement;
  std::memcpy(&announcement, front.payload.data(), sizeof announcement);
  std::byte* state = from.memory->control().base() + announcement.state;
  message.bytes = announcement.bytes;
  message.state = std::launder(reinterpret_cast<MessageState*>(state));
  if (front.kind == SlotKind::eager) {
    message.source = state + sizeof(MessageState);
  } else if (front.kind == SlotKind::arena) {
    message.source = from.memory->arena().base() + announcement.arena;
  } else {
    message.source = nullptr;
    message.bounced = true;
  }
  return message;
}

}  // namespace

// A message that has come already is received at once. Withdrawn ones are acknowledged, so that
// their sender can use their state again, and passed over.
void Receiver::post(ShmPeer& from, std::uint64_t tag, std::span<std::byte> room,
                    Transfer& transfer) {
  Receive& receive = receives_.acquire();
  receive = {.transfer = &transfer, .from = &from, .tag = tag, .room = room};
  transfer.handle = &receive;
  const auto fits = [tag](const Unexpected& aside) { return aside.message.tag == tag; };
  while (Unexpected* aside = from.unexpected.extract(fits)) {
    if (from.unexpected.size() == most_unexpected / 2 && from.in.attached())
      from.in.set_crowded(false);
    const bool valid = !withdrawn(aside->message);
    if (valid) {
      accept(receive, aside->message);
    } else {
      acknowledge(from, aside->message);
    }
    unexpected_.release(*aside);
    if (valid) return;
  }
  from.posted.push(receive);
  if (from.listened_to || from.rank == rank_) return;
  from.listened_to = true;
  listening_.push_back(&from);
}

// There is no ring to oneself: the message goes straight to its receive, or is kept. A short one is
// copied, so that its send is done; a longer one stays where it is until it is received.
void Receiver::send_own(ShmPeer& own, std::uint64_t tag, std::span<const std::byte> data,
                        Transfer& transfer) {
  Incoming message{.tag = tag, .bytes = data.size(), .source = data.data()};
  const bool copied = data.size() <= ring_payload_bytes && own.unexpected.size() < most_unexpected;
  if (!copied) message.own_send = &transfer;
  Receive* receive = own.posted.extract([tag](const Receive& other) { return other.tag == tag; });
  if (receive != nullptr) {
    accept(*receive, message);
  } else {
    keep_unexpected(own, message);
  }
  if (copied) finish(transfer, Failure::none);
}

bool Receiver::progress(std::size_t& budget) {
  bool moved = poll_awaited();
  moved = poll_others() || moved;
  if (!copying_.empty()) {
    copying_.rotate([&](Receive& receive) { return step(receive, budget, moved); },
                    [&] { return budget == 0; });
  }
  return moved;
}

// Reads the rings of peers from which receives are posted.
bool Receiver::poll_awaited() {
  bool moved = false;
  for (std::size_t i = 0; i < listening_.size();) {
    ShmPeer& from = *listening_[i];
    moved = (find_ring_of(from) && read_ring(from)) || moved;
    if (from.posted.empty()) {
      from.listened_to = false;
      listening_[i] = listening_.back();
      listening_.pop_back();
    } else {
      i += 1;
    }
  }
  return moved;
}

// A few at a time: it is not urgent.
bool Receiver::poll_others() {
  bool moved = false;
  for (std::size_t i = std::min(others_at_once, peers_.size()); i > 0; --i) {
    ShmPeer& from = peers_[next_other_];
    next_other_ = next_other_ + 1 == peers_.size() ? 0 : next_other_ + 1;
    if (from.listened_to || !find_ring_of(from) || !from.in.half_full()) continue;
    if (from.unexpected.size() < most_from_others) moved = read_ring(from) || moved;
  }
  return moved;
}

// The peer makes its ring when it first sends: until then there is none.
bool Receiver::find_ring_of(ShmPeer& from) const noexcept {
  if (from.in.attached()) return true;
  if (from.memory == nullptr || from.rank == rank_) return false;
  Ring* ring = find_ring(*from.memory, rank_);
  if (ring != nullptr) from.in = RingReader(*ring);
  return ring != nullptr;
}

// Reads what is there, as long as a receive is posted or the ring is half full.
bool Receiver::read_ring(ShmPeer& from) {
  std::size_t count = 0;
  for (; count < ring_slots && from.in.ready(); ++count) {
    if (from.posted.empty() && !from.in.half_full()) break;
    receive_front(from);
  }
  // The peer may sleep until there are free slots.
  if (count != 0) notify(from, may_sleep_);
  return count != 0;
}

// Matches the oldest message of the ring with the oldest receive of its tag.
void Receiver::receive_front(ShmPeer& from) {
  const Incoming message = read(from, from.in.front());
  if (withdrawn(message)) {
    acknowledge(from, message);
  } else if (Receive* receive = from.posted.extract(
                 [&](const Receive& other) { return other.tag == message.tag; })) {
    accept(*receive, message);
  } else {
    keep_unexpected(from, message);
  }
  from.in.pop();
}

// An inlined message is copied, because its slot will be used again. All others stay where they
// are.
void Receiver::keep_unexpected(ShmPeer& from, const Incoming& message) {
  Unexpected& aside = unexpected_.acquire();
  aside.message = message;
  if (message.state == nullptr && message.own_send == nullptr) {
    std::copy_n(message.source, message.bytes, aside.copy.data());
    aside.message.source = aside.copy.data();
  }
  from.unexpected.push(aside);
  if (from.unexpected.size() == most_unexpected && from.in.attached()) from.in.set_crowded(true);
}

// A message and its receive have met.
void Receiver::accept(Receive& receive, const Incoming& message) {
  receive.message = message;
  if (message.bytes > receive.room.size()) {
    end(receive, Failure::truncated);
  } else if (message.bytes <= eager_bytes && !message.bounced) {
    std::copy_n(message.source, message.bytes, receive.room.data());
    end(receive, still_valid(message) ? Failure::none : Failure::withdrawn);
  } else {
    copying_.push(receive);
    if (!message.bounced) return;
    // Relaxed: it says nothing but itself.
    message.state->requested.store(1, std::memory_order_relaxed);
    notify(*receive.from, may_sleep_);
  }
}

// True when the receive is over.
bool Receiver::step(Receive& receive, std::size_t& budget, bool& moved) {
  const Incoming& message = receive.message;
  if (!message.bounced) {
    copy_from_memory(receive, budget);
  } else if (!copy_fragment(receive, budget)) {
    if (!withdrawn(message)) return false;
  }
  moved = true;
  const bool valid = still_valid(message);
  if (valid && receive.copied < message.bytes) return false;
  end(receive, valid ? Failure::none : Failure::withdrawn);
  return true;
}

// Straight out of the sender's memory, as far as this call of progress() may.
void Receiver::copy_from_memory(Receive& receive, std::size_t& budget) noexcept {
  const std::size_t bytes = std::min(budget, receive.message.bytes - receive.copied);
  std::memcpy(receive.room.data() + receive.copied, receive.message.source + receive.copied, bytes);
  receive.copied += bytes;
  budget -= bytes;
}

// Copies the next fragment of an ordinary message, if the sender has filled one. True if it did.
bool Receiver::copy_fragment(Receive& receive, std::size_t& budget) const noexcept {
  MessageState& state = *receive.message.state;
  const std::uint64_t emptied = receive.copied / fragment_bytes;
  // Acquire: the fragment's bytes were stored before it was counted.
  if (state.filled.load(std::memory_order_acquire) == emptied) return false;
  const std::byte* bounce =
      receive.from->memory->control().base() + state.bounce.load(std::memory_order_relaxed);
  const std::size_t bytes = std::min(fragment_bytes, receive.message.bytes - receive.copied);
  std::memcpy(receive.room.data() + receive.copied,
              bounce + emptied % bounce_fragments * fragment_bytes, bytes);
  receive.copied += bytes;
  budget -= std::min(budget, bytes);
  // Release: the reads of the fragment come before the sender fills it again.
  state.emptied.store(emptied + 1, std::memory_order_release);
  notify(*receive.from, may_sleep_);
  return true;
}

// Ends a matched receive, and the message with it.
void Receiver::end(Receive& receive, Failure failure) noexcept {
  acknowledge(*receive.from, receive.message);
  receive.transfer->bytes = receive.message.bytes;
  finish(*receive.transfer, failure);
  receives_.release(receive);
}

// Tells the sender that nothing of the message is read any more.
void Receiver::acknowledge(const ShmPeer& from, const Incoming& message) const noexcept {
  if (message.own_send != nullptr) finish(*message.own_send, Failure::none);
  if (message.state == nullptr) return;
  // Release: all reads of the message come before its memory is written again.
  message.state->consumed.store(1, std::memory_order_release);
  notify(from, may_sleep_);
}

// A receive is either posted or being copied. A send to oneself is either kept, or its receive is
// being copied, which then fails.
void Receiver::cancel(ShmPeer& own, Transfer& transfer) noexcept {
  if (auto* receive = static_cast<Receive*>(transfer.handle)) {
    const auto same = [&](const Receive& other) { return &other == receive; };
    if (receive->from->posted.extract(same) == nullptr && copying_.extract(same) != nullptr) {
      acknowledge(*receive->from, receive->message);
    }
    receives_.release(*receive);
  } else if (Unexpected* aside = own.unexpected.extract(
                 [&](const Unexpected& other) { return other.message.own_send == &transfer; })) {
    unexpected_.release(*aside);
  } else if (Receive* copying = copying_.extract(
                 [&](const Receive& other) { return other.message.own_send == &transfer; })) {
    end(*copying, Failure::withdrawn);
  }
  finish(transfer, Failure::cancelled);
}

}  // namespace rondo::transport::shm_link
