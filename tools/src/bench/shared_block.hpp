#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include <rondo/transport/world.hpp>

#include "bench/operation.hpp"

namespace rondo::tools {

/// Plain memory that all ranks of a machine have mapped, with a barrier in it: the bench's own
/// measure, which needs the transport only to be set up.
///
/// Every rank has a buffer of floats, first touched by itself.
class SharedBlock {
 public:
  /// Collective.
  SharedBlock(transport::World& world, std::size_t buffer_bytes);
  SharedBlock(const SharedBlock&) = delete;
  SharedBlock& operator=(const SharedBlock&) = delete;
  ~SharedBlock();

  [[nodiscard]] float* buffer(int rank) const noexcept;

  /// Returns when all ranks have called it. Spins; gives the CPU away only after long, or at once
  /// when ranks outnumber CPUs. Calls `meanwhile`, if any, as long as it waits. Throws
  /// transport::Error(peer_lost) when a rank that has not come has ended.
  void barrier(const std::function<void()>& meanwhile = {});

 private:
  struct alignas(128) Flag {
    std::atomic<std::uint64_t> passed;
  };
  [[nodiscard]] Flag& flag(int rank) const noexcept;
  void map(int fd);
  void throw_if_lost(int peer) const;

  int rank_;
  int ranks_;
  std::size_t buffer_bytes_;
  std::size_t flags_bytes_;
  std::size_t rank_bytes_;  // of one rank's buffer, in whole pages
  std::byte* memory_ = nullptr;
  std::uint64_t barriers_ = 0;
  std::vector<transport::RankInfo> peers_;
  int spins_;
};

/// Can `ranks` share memory by the files of their processes? Those of one node can, and those of
/// fake nodes, if all are on one host: several hosts may have fake nodes, too.
[[nodiscard]] bool on_one_machine(std::span<const transport::RankInfo> ranks, bool fake_nodes);

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

/// The least cost of an allreduce of `count` floats inside a node: a barrier, one pass of loads and
/// stores over the buffers of `shared`, and another barrier.
[[nodiscard]] std::unique_ptr<BenchOperation> make_one_pass(SharedBlock& shared,
                                                            const BenchSetting& setting);

}  // namespace rondo::tools
