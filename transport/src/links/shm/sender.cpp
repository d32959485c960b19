#include "links/shm/sender.hpp"

#include <algorithm>
#include <cstring>

#include <rondo/transport/error.hpp>

#include "shm/doorbell.hpp"

namespace rondo::transport::links::shm {
namespace {

std::span<const std::byte> bytes_of(const Announcement& announcement) noexcept {
  return std::as_bytes(std::span(&announcement, 1));
}

void withdraw(Send& send) noexcept {
  // What the poster writes into its memory from now on comes after the mark: a receiver that has
  // read any of it finds the mark when it looks once more at the end.
  send.parcel->withdrawn.store(1, std::memory_order_relaxed);
  std::atomic_thread_fence(std::memory_order_seq_cst);
  send.transfer = nullptr;
}

}  // namespace

Sender::~Sender() {
  while (!offered_.empty()) {
    if (Send& send = offered_.pop(); send.transfer != nullptr) withdraw(send);
  }
}

void Sender::post(Peer& to, std::uint64_t tag, std::span<const std::byte> data,
                  Transfer& transfer) {
  if (to.waiting.empty() && put_if_memory(to, tag, data, transfer)) return;
  Send& send = sends_.take();
  send = {.transfer = &transfer, .to = &to, .tag = tag, .data = data};
  transfer.handle = &send;
  to.waiting.push(send);
  if (to.has_waiting) return;
  to.has_waiting = true;
  with_waiting_.push_back(&to);
}

bool Sender::put_if_memory(Peer& to, std::uint64_t tag, std::span<const std::byte> data,
                           Transfer& transfer) {
  try {
    return put(to, tag, data, transfer);
  } catch (const Error&) {
    finish(transfer, Failure::no_memory);
    return true;
  }
}

// False if there is no slot for it.
bool Sender::put(Peer& to, std::uint64_t tag, std::span<const std::byte> data, Transfer& transfer) {
  if (!to.out.attached()) to.out = RingWriter(make_ring(*mine_, rings_, to.rank));
  if (to.out.full()) return false;
  // What a crowded receiver does not ask for stays here: its sends are not done, and so the memory
  // of both sides is bounded by what this rank's caller has pending.
  const bool copied = data.size() <= box_bytes && !to.out.crowded();
  const bool inlined = copied && data.size() <= inline_bytes;
  Box* box = copied && !inlined ? supply_.take_box() : nullptr;
  if (inlined) {
    to.out.push(Kind::inlined, tag, data);
    finish(transfer, Failure::none);
  } else if (box != nullptr) {
    std::memcpy(box->message.data(), data.data(), data.size());
    const Announcement announcement{.bytes = data.size(), .parcel = supply_.offset_of(box)};
    to.out.push(Kind::boxed, tag, bytes_of(announcement));
    finish(transfer, Failure::none);
  } else {
    offer(to, tag, data, transfer);
  }
  published(to);
  return true;
}

void Sender::offer(Peer& to, std::uint64_t tag, std::span<const std::byte> data,
                   Transfer& transfer) {
  Parcel& parcel = supply_.take_parcel();
  Send& send = sends_.take();
  send = {.transfer = &transfer, .to = &to, .tag = tag, .data = data, .parcel = &parcel};
  transfer.handle = &send;
  offered_.push(send);
  const transport::shm::Segment& arena = mine_->arena();
  const auto offset = static_cast<std::uint64_t>(reinterpret_cast<std::uintptr_t>(data.data()) -
                                                 reinterpret_cast<std::uintptr_t>(arena.base()));
  const bool in_arena = offset < arena.size() && data.size() <= arena.size() - offset;
  const Announcement announcement{
      .bytes = data.size(), .parcel = supply_.offset_of(&parcel), .arena = in_arena ? offset : 0};
  to.out.push(in_arena ? Kind::arena : Kind::ordinary, tag, bytes_of(announcement));
}

bool Sender::progress(std::size_t& budget) {
  bool moved = !with_waiting_.empty() && send_waiting();
  if (!offered_.empty()) {
    offered_.rotate([&](Send& send) { return step(send, budget, moved); },
                    [&] { return budget == 0; });
  }
  return moved;
}

bool Sender::send_waiting() {
  bool moved = false;
  std::erase_if(with_waiting_, [&](Peer* to) {
    while (!to->waiting.empty()) {
      Send& send = *to->waiting.front();
      if (!put_if_memory(*to, send.tag, send.data, *send.transfer)) return false;
      sends_.give(to->waiting.pop());
      moved = true;
    }
    to->has_waiting = false;
    return true;
  });
  return moved;
}

// True when the send is over, and its parcel and stream are free.
bool Sender::step(Send& send, std::size_t& budget, bool& moved) {
  Parcel& parcel = *send.parcel;
  // Acquire: the receiver's reads come before the memory is written again.
  if (parcel.taken.load(std::memory_order_acquire) == 0) {
    // Relaxed: it says nothing but itself.
    const bool wanted = parcel.wanted.load(std::memory_order_relaxed) != 0;
    if (wanted && send.transfer != nullptr) moved = fill(send, budget) || moved;
    return false;
  }
  if (send.transfer != nullptr) finish(*send.transfer, Failure::none);
  if (send.stream != nullptr) supply_.give(send.stream);
  supply_.give(parcel);
  sends_.give(send);
  moved = true;
  return true;
}

bool Sender::fill(Send& send, std::size_t& budget) {
  Parcel& parcel = *send.parcel;
  if (send.stream == nullptr) {
    send.stream = supply_.take_stream();
    if (send.stream == nullptr) return false;
    // Relaxed: the first chunk's release makes it visible.
    parcel.stream.store(supply_.offset_of(send.stream), std::memory_order_relaxed);
  }
  // Acquire: the receiver's reads of a chunk come before the stores that fill it again.
  if (send.filled - parcel.emptied.load(std::memory_order_acquire) == stream_chunks) return false;
  const std::size_t begin = send.filled * chunk_bytes;
  const std::size_t bytes = std::min(chunk_bytes, send.data.size() - begin);
  std::memcpy(send.stream + send.filled % stream_chunks * chunk_bytes, send.data.data() + begin,
              bytes);
  budget -= std::min(budget, bytes);
  send.filled += 1;
  // Release: a receiver that counts the chunk sees its bytes.
  parcel.filled.store(send.filled, std::memory_order_release);
  published(*send.to);
  if (begin + bytes == send.data.size()) {
    finish(*send.transfer, Failure::none);
    send.transfer = nullptr;
  }
  return true;
}

void Sender::cancel(Transfer& transfer) noexcept {
  auto* send = static_cast<Send*>(transfer.handle);
  if (send->parcel != nullptr) {
    withdraw(*send);
  } else {
    send->to->waiting.take([&](const Send& other) { return &other == send; });
    sends_.give(*send);
  }
  finish(transfer, Failure::cancelled);
}

void Sender::published(const Peer& to) const noexcept {
  if (!peers_sleep_) return;
  transport::shm::fence_before_ringing();
  transport::shm::ring_if_asleep(to.memory->header());
}

}  // namespace rondo::transport::links::shm
