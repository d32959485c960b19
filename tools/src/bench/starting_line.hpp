#pragma once

#include <cstddef>
#include <functional>
#include <optional>

#include "bench/shared_block.hpp"

namespace rondo::tools {

/// Where ranks wait for each other before a timed region.
///
/// On one machine, fake nodes included, this is a barrier of the bench's own in shared memory.
/// Between machines it is the transport's; then ranks start as far apart as that lets them go.
class StartingLine {
 public:
  /// Collective. Buffers of `buffer_bytes` per rank lie in shared memory(), for one machine only.
  /// With `messages` ranks that wait advance what they have sent.
  StartingLine(transport::World& world, std::size_t buffer_bytes, bool messages);

  void wait();

  /// Null between machines.
  [[nodiscard]] SharedBlock* memory() noexcept { return block_ ? &*block_ : nullptr; }

 private:
  transport::World& world_;
  std::function<void()> meanwhile_ = {};
  std::optional<SharedBlock> block_ = {};
};

/// Are all ranks of `world` on one machine?
[[nodiscard]] bool on_one_machine(const transport::World& world);

}  // namespace rondo::tools
