#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include <rondo/transport/world.hpp>

namespace rondo::tools {

/// Plain memory that all ranks of a machine have mapped, with a barrier in it: the bench's own
/// yardstick, which owes nothing to the transport but the meeting.
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

}  // namespace rondo::tools
