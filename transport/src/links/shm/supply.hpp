#pragma once

#include <cstddef>
#include <vector>

#include "links/shm/layout.hpp"
#include "shm/memory.hpp"

namespace rondo::transport::links::shm {

/// The parcels, boxes and streams of one rank, in its control segment: made on first use, and used
/// again. Boxes and streams are bounded in number; parcels are as many as messages are announced.
class Supply {
 public:
  explicit Supply(transport::shm::RankMemory& mine) noexcept : mine_(&mine) {}

  /// A parcel about which nothing has been said. Throws Error(out_of_memory).
  [[nodiscard]] Parcel& take_parcel();
  void give(Parcel& parcel) noexcept { parcels_.push_back(&parcel); }

  /// A box whose last message has been taken; null when there is none. The receiver gives it
  /// back by taking its message. Throws Error(out_of_memory).
  [[nodiscard]] Box* take_box();

  /// stream_bytes bytes; null when all streams are in use. Throws Error(out_of_memory).
  [[nodiscard]] std::byte* take_stream();
  void give(std::byte* stream) noexcept { streams_.push_back(stream); }

  /// Where in the control segment something of it lies.
  [[nodiscard]] std::uint64_t offset_of(const void* thing) const noexcept;

 private:
  void make_parcels();
  void make_boxes();
  [[nodiscard]] Box* next_box() noexcept;

  transport::shm::RankMemory* mine_;
  std::vector<Parcel*> parcels_;  // free ones; never grows in give()
  std::size_t parcels_made_ = 0;
  std::vector<Box*> boxes_;  // all; used in turn
  std::size_t box_ = 0;
  std::vector<std::byte*> streams_;  // free ones; never grows in give()
  std::size_t streams_made_ = 0;
};

}  // namespace rondo::transport::links::shm
