#include "links/shm/supply.hpp"

#include <new>

namespace rondo::transport::links::shm {
namespace {

constexpr std::size_t parcels_at_once = 32;
constexpr std::size_t boxes_at_once = 8;
constexpr std::size_t most_boxes = 64;
constexpr std::size_t most_streams = 16;
// Boxes that are looked at for a free one: a message that finds none is announced instead.
constexpr int box_tries = 4;

}  // namespace

Parcel& Supply::take_parcel() {
  if (parcels_.empty()) make_parcels();
  Parcel& parcel = *parcels_.back();
  parcels_.pop_back();
  return *::new (&parcel) Parcel;
}

void Supply::make_parcels() {
  parcels_.reserve(parcels_made_ + parcels_at_once);
  const std::uint64_t offset =
      transport::shm::append(mine_->control(), parcels_at_once * sizeof(Parcel));
  std::byte* base = mine_->control().base() + offset;
  for (std::size_t i = 0; i < parcels_at_once; ++i) {
    parcels_.push_back(::new (base + i * sizeof(Parcel)) Parcel);
  }
  parcels_made_ += parcels_at_once;
}

Box* Supply::take_box() {
  Box* box = next_box();
  if (box == nullptr && boxes_.size() < most_boxes) {
    make_boxes();
    box = next_box();
  }
  // Relaxed: the slot that announces the box makes it visible.
  if (box != nullptr) box->parcel.taken.store(0, std::memory_order_relaxed);
  return box;
}

Box* Supply::next_box() noexcept {
  for (int i = 0; i < box_tries && !boxes_.empty(); ++i) {
    Box* box = boxes_[box_];
    box_ = (box_ + 1) % boxes_.size();
    // Acquire: the receiver's reads of the last message come before the next is written.
    if (box->parcel.taken.load(std::memory_order_acquire) != 0) return box;
  }
  return nullptr;
}

void Supply::make_boxes() {
  const std::uint64_t offset =
      transport::shm::append(mine_->control(), boxes_at_once * sizeof(Box));
  std::byte* base = mine_->control().base() + offset;
  box_ = boxes_.size();
  for (std::size_t i = 0; i < boxes_at_once; ++i) {
    auto* box = ::new (base + i * sizeof(Box)) Box;
    box->parcel.taken.store(1, std::memory_order_relaxed);
    boxes_.push_back(box);
  }
}

std::byte* Supply::take_stream() {
  if (streams_.empty()) {
    if (streams_made_ == most_streams) return nullptr;
    streams_.reserve(streams_made_ + 1);
    const std::uint64_t offset = transport::shm::append(mine_->control(), stream_bytes);
    streams_made_ += 1;
    return mine_->control().base() + offset;
  }
  std::byte* stream = streams_.back();
  streams_.pop_back();
  return stream;
}

std::uint64_t Supply::offset_of(const void* thing) const noexcept {
  return static_cast<std::uint64_t>(static_cast<const std::byte*>(thing) - mine_->control().base());
}

}  // namespace rondo::transport::links::shm
