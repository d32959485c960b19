#include "links/shm/receiver.hpp"

#include <algorithm>
#include <cstring>
#include <new>

#include "shm/doorbell.hpp"

namespace rondo::transport::links::shm {
namespace {

// Peers that are not asked for anything: how many are looked at in one call, and how many messages
// of one are put aside.
constexpr std::size_t others_at_once = 8;
constexpr std::size_t most_unasked = 1024;
// How many messages of one peer are put aside before it is told to keep the next.
constexpr std::size_t crowd = 16'384;

bool withdrawn(const Message& message) noexcept {
  // Relaxed: the fence in still_valid() orders it where what was read depends on it.
  return message.parcel != nullptr &&
         message.parcel->withdrawn.load(std::memory_order_relaxed) != 0;
}

// Was what has just been read of `message` the message?
bool still_valid(const Message& message) noexcept {
  if (message.parcel == nullptr) return true;
  // What was read comes before the mark that says whether it was valid.
  std::atomic_thread_fence(std::memory_order_acquire);
  return !withdrawn(message);
}

// What a slot tells; a message's source is where it lies now.
Message read(const Peer& from, const RingReader::Front& front) noexcept {
  Message message{.tag = front.tag, .bytes = front.payload.size(), .source = front.payload.data()};
  if (front.kind == Kind::inlined) return message;
  Announcement announcement;
  std::memcpy(&announcement, front.payload.data(), sizeof announcement);
  std::byte* parcel = from.memory->control().base() + announcement.parcel;
  message.bytes = announcement.bytes;
  message.parcel = std::launder(reinterpret_cast<Parcel*>(parcel));
  if (front.kind == Kind::boxed) {
    message.source = parcel + sizeof(Parcel);
  } else if (front.kind == Kind::arena) {
    message.source = from.memory->arena().base() + announcement.arena;
  } else {
    message.source = nullptr;
    message.flows = true;
  }
  return message;
}

}  // namespace

void Receiver::post(Peer& from, std::uint64_t tag, std::span<std::byte> room, Transfer& transfer) {
  Receive& receive = receives_.take();
  receive = {.transfer = &transfer, .from = &from, .tag = tag, .room = room};
  transfer.handle = &receive;
  const auto fits = [tag](const Unexpected& aside) { return aside.message.tag == tag; };
  while (Unexpected* aside = from.unexpected.take(fits)) {
    if (from.unexpected.size() == crowd / 2 && from.in.attached()) from.in.set_crowded(false);
    const bool valid = !withdrawn(aside->message);
    if (valid) {
      accept(receive, aside->message);
    } else {
      acknowledge(from, aside->message);
    }
    asides_.give(*aside);
    if (valid) return;
  }
  from.posted.push(receive);
  if (from.listened_to || from.rank == rank_) return;
  from.listened_to = true;
  listening_.push_back(&from);
}

void Receiver::send_own(Peer& own, std::uint64_t tag, std::span<const std::byte> data,
                        Transfer& transfer) {
  Message message{.tag = tag, .bytes = data.size(), .source = data.data()};
  const bool copied = data.size() <= inline_bytes && own.unexpected.size() < crowd;
  if (!copied) message.own_send = &transfer;
  Receive* receive = own.posted.take([tag](const Receive& other) { return other.tag == tag; });
  if (receive != nullptr) {
    accept(*receive, message);
  } else {
    put_aside(own, message);
  }
  if (copied) finish(transfer, Failure::none);
}

bool Receiver::progress(std::size_t& budget) {
  bool moved = poll_asked();
  moved = poll_others() || moved;
  if (!taking_.empty()) {
    taking_.rotate([&](Receive& receive) { return step(receive, budget, moved); },
                   [&] { return budget == 0; });
  }
  return moved;
}

bool Receiver::poll_asked() {
  bool moved = false;
  for (std::size_t i = 0; i < listening_.size();) {
    Peer& from = *listening_[i];
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
    Peer& from = peers_[next_other_];
    next_other_ = next_other_ + 1 == peers_.size() ? 0 : next_other_ + 1;
    if (from.listened_to || !find_ring_of(from) || !from.in.half_full()) continue;
    if (from.unexpected.size() < most_unasked) moved = read_ring(from) || moved;
  }
  return moved;
}

bool Receiver::find_ring_of(Peer& from) const noexcept {
  if (from.in.attached()) return true;
  if (from.memory == nullptr || from.rank == rank_) return false;
  Ring* ring = find_ring(from, rank_);
  if (ring != nullptr) from.in = RingReader(*ring);
  return ring != nullptr;
}

// Takes what is there, as long as somebody asks for it or the ring is half full.
bool Receiver::read_ring(Peer& from) {
  std::size_t taken = 0;
  for (; taken < ring_slots && from.in.ready(); ++taken) {
    if (from.posted.empty() && !from.in.half_full()) break;
    take_front(from);
  }
  // The peer may sleep until there are free slots.
  if (taken != 0) published(from);
  return taken != 0;
}

void Receiver::take_front(Peer& from) {
  const Message message = read(from, from.in.front());
  if (withdrawn(message)) {
    acknowledge(from, message);
  } else if (Receive* receive =
                 from.posted.take([&](const Receive& other) { return other.tag == message.tag; })) {
    accept(*receive, message);
  } else {
    put_aside(from, message);
  }
  from.in.pop();
}

void Receiver::put_aside(Peer& from, const Message& message) {
  Unexpected& aside = asides_.take();
  aside.message = message;
  if (message.parcel == nullptr && message.own_send == nullptr) {
    std::copy_n(message.source, message.bytes, aside.copy.data());
    aside.message.source = aside.copy.data();
  }
  from.unexpected.push(aside);
  if (from.unexpected.size() == crowd && from.in.attached()) from.in.set_crowded(true);
}

void Receiver::accept(Receive& receive, const Message& message) {
  receive.message = message;
  if (message.bytes > receive.room.size()) {
    end(receive, Failure::truncated);
  } else if (message.bytes <= box_bytes && !message.flows) {
    std::copy_n(message.source, message.bytes, receive.room.data());
    end(receive, still_valid(message) ? Failure::none : Failure::withdrawn);
  } else {
    taking_.push(receive);
    if (!message.flows) return;
    // Relaxed: it says nothing but itself.
    message.parcel->wanted.store(1, std::memory_order_relaxed);
    published(*receive.from);
  }
}

// True when the receive is over.
bool Receiver::step(Receive& receive, std::size_t& budget, bool& moved) {
  const Message& message = receive.message;
  if (!message.flows) {
    copy_tile(receive, budget);
  } else if (!empty_chunk(receive, budget)) {
    if (!withdrawn(message)) return false;
  }
  moved = true;
  const bool valid = still_valid(message);
  if (valid && receive.copied < message.bytes) return false;
  end(receive, valid ? Failure::none : Failure::withdrawn);
  return true;
}

void Receiver::copy_tile(Receive& receive, std::size_t& budget) noexcept {
  const std::size_t bytes = std::min(budget, receive.message.bytes - receive.copied);
  std::memcpy(receive.room.data() + receive.copied, receive.message.source + receive.copied, bytes);
  receive.copied += bytes;
  budget -= bytes;
}

bool Receiver::empty_chunk(Receive& receive, std::size_t& budget) const noexcept {
  Parcel& parcel = *receive.message.parcel;
  const std::uint64_t emptied = receive.copied / chunk_bytes;
  // Acquire: the chunk's bytes were stored before it was counted.
  if (parcel.filled.load(std::memory_order_acquire) == emptied) return false;
  const std::byte* stream =
      receive.from->memory->control().base() + parcel.stream.load(std::memory_order_relaxed);
  const std::size_t bytes = std::min(chunk_bytes, receive.message.bytes - receive.copied);
  std::memcpy(receive.room.data() + receive.copied, stream + emptied % stream_chunks * chunk_bytes,
              bytes);
  receive.copied += bytes;
  budget -= std::min(budget, bytes);
  // Release: the reads of the chunk come before the sender fills it again.
  parcel.emptied.store(emptied + 1, std::memory_order_release);
  published(*receive.from);
  return true;
}

void Receiver::end(Receive& receive, Failure failure) noexcept {
  acknowledge(*receive.from, receive.message);
  receive.transfer->bytes = receive.message.bytes;
  finish(*receive.transfer, failure);
  receives_.give(receive);
}

void Receiver::acknowledge(const Peer& from, const Message& message) const noexcept {
  if (message.own_send != nullptr) finish(*message.own_send, Failure::none);
  if (message.parcel == nullptr) return;
  // Release: all reads of the message come before its memory is written again.
  message.parcel->taken.store(1, std::memory_order_release);
  published(from);
}

void Receiver::cancel(Peer& own, Transfer& transfer) noexcept {
  if (auto* receive = static_cast<Receive*>(transfer.handle)) {
    const auto same = [&](const Receive& other) { return &other == receive; };
    if (receive->from->posted.take(same) == nullptr && taking_.take(same) != nullptr) {
      acknowledge(*receive->from, receive->message);
    }
    receives_.give(*receive);
  } else if (Unexpected* aside = own.unexpected.take(
                 [&](const Unexpected& other) { return other.message.own_send == &transfer; })) {
    asides_.give(*aside);
  } else if (Receive* taking = taking_.take(
                 [&](const Receive& other) { return other.message.own_send == &transfer; })) {
    end(*taking, Failure::withdrawn);
  }
  finish(transfer, Failure::cancelled);
}

void Receiver::published(const Peer& to) const noexcept {
  if (!peers_sleep_) return;
  transport::shm::fence_before_ringing();
  transport::shm::ring_if_asleep(to.memory->header());
}

}  // namespace rondo::transport::links::shm
