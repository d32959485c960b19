#pragma once

#include <cstddef>
#include <cstdint>

#include "collective/operation.hpp"

namespace rondo::transport {

/// Broadcast and allgather of inputs of which at least one is in ordinary memory: who gives
/// copies its input into its staging buffers, round by round; who takes copies it out.
///
/// Loads the bytes of the result that are not its own; stores nothing into peers.
class StagedPull final : public Operation {
 public:
  StagedPull(Group& group, const Posted& posted);
  Progress step(Group& group, const Posted& posted) override;
  [[nodiscard]] bool waits_for(const Group& group, std::size_t member) const override;

 private:
  [[nodiscard]] bool gives(std::size_t member) const noexcept;
  [[nodiscard]] bool readable(const Group& group) const noexcept;
  void fill(Group& group, const Posted& posted);
  void read(Group& group, const Posted& posted);

  std::uint64_t first_;  // round
  std::uint64_t end_;
  std::uint64_t filled_;
  std::uint64_t read_;
  int root_;  // -1: everyone gives
};

}  // namespace rondo::transport
