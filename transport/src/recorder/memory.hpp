#pragma once

#include <optional>
#include <vector>

#include "recorder/layout.hpp"
#include "shm/memory.hpp"

namespace rondo::transport::recorder {

/// Memory that one rank records into, as the rank itself, a peer or a launcher holds it.
class Memory {
 public:
  /// New and empty.
  [[nodiscard]] static Memory create();
  /// Somebody else's.
  [[nodiscard]] static Memory map(shm::Descriptor descriptor);
  /// What a launcher left open under `descriptor`, for this process to record into; nothing when
  /// there is something else, because a program between the two has closed it.
  [[nodiscard]] static std::optional<Memory> inherit(int descriptor);

  /// Nothing while no rank has begun to record. Valid as long as this object.
  [[nodiscard]] const Header* header() const;
  [[nodiscard]] std::vector<const Log*> logs() const;

  /// For the rank itself.
  [[nodiscard]] shm::Segment& segment() noexcept { return segment_; }
  [[nodiscard]] int descriptor() const noexcept { return segment_.descriptor(); }

 private:
  explicit Memory(shm::Segment segment) : segment_(std::move(segment)) {}
  [[nodiscard]] std::size_t size() const;

  shm::Segment segment_;
};

}  // namespace rondo::transport::recorder
