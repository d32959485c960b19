#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "shm/layout.hpp"
#include "shm/segment.hpp"

namespace rondo::transport::shm {

/// Addresses that each rank reserves for its segments; equal on all ranks of a node.
struct Reserve {
  std::size_t control_bytes = 0;
  std::size_t arena_bytes = 0;

  /// For `ranks` ranks that map each other: as much as the machine has memory, unless many ranks
  /// would exhaust the address space.
  [[nodiscard]] static Reserve of(int ranks);
};

/// One rank's memory, as its owner or a peer sees it: a control segment, which begins with the
/// RankHeader and the World communicator's two ControlBlocks, and an arena.
class RankMemory {
 public:
  /// Makes this rank's own memory, ready for peers to map.
  [[nodiscard]] static std::shared_ptr<RankMemory> create(const Reserve& reserve,
                                                          std::uint64_t nonce);
  /// Maps a peer's; throws Error(rendezvous_failed) when it is not the peer's.
  [[nodiscard]] static std::shared_ptr<RankMemory> map(Descriptor control, Descriptor arena,
                                                       const Reserve& reserve, std::uint64_t nonce);

  [[nodiscard]] RankHeader& header() const noexcept;
  /// The block at `offset` of the control segment.
  [[nodiscard]] ControlBlock& block(std::uint64_t offset) const noexcept;

  [[nodiscard]] Segment& control() noexcept { return control_; }
  [[nodiscard]] Segment& arena() noexcept { return arena_; }

  static constexpr std::uint64_t world_block = sizeof(RankHeader);
  static constexpr std::uint64_t world_up_block = world_block + sizeof(ControlBlock);

 private:
  Segment control_;
  Segment arena_;
};

/// Appends a new block (or any other thing of `bytes` bytes) to a control segment of one's own.
[[nodiscard]] std::uint64_t append(Segment& control, std::size_t bytes);

}  // namespace rondo::transport::shm
