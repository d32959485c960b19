#pragma once

#include <atomic>
#include <cstdint>

#include "shm/layout.hpp"

// How a rank that gives up an operation knows that its peers leave its buffers alone.
//
// Before a step reads or stores in peers' arenas, its rank stores which operation it works on, then
// looks whether a peer has failed, and only then touches memory. A rank that fails stores that it
// has, then looks which peers are in such a step, and waits for them. Each side stores first and
// loads then; so one of them sees the other, as long as neither load overtakes its store.
//
// Failures are rare and steps are not. So in a step the fence between the two is for the compiler
// only, and the rank that fails makes the kernel run a fence on every processor (membarrier). Where
// the kernel does not offer that to all ranks of the node, each step pays for a full fence.

namespace rondo::transport::shm {

/// Asks the kernel that fence_everywhere() of other processes reaches this one. False if it
/// cannot. More than once does no harm.
[[nodiscard]] bool offer_light_fences() noexcept;

/// A full fence here and, between two of their instructions, on all threads of all processes that
/// offered light fences.
void fence_everywhere() noexcept;

/// While it lives, this rank works on operation `sequence` in peers' arenas. After making one, and
/// before touching anything, look at ControlBlock::failed of the peers.
class RemoteAccess {
 public:
  /// `light`: have all ranks of the node offered light fences?
  RemoteAccess(ControlBlock& mine, std::uint64_t sequence, bool light) noexcept : mine_(&mine) {
    mine.accessing.store(sequence, std::memory_order_relaxed);
    if (light) {
      std::atomic_signal_fence(std::memory_order_seq_cst);
    } else {
      std::atomic_thread_fence(std::memory_order_seq_cst);
    }
  }
  RemoteAccess(const RemoteAccess&) = delete;
  RemoteAccess& operator=(const RemoteAccess&) = delete;
  // Release: a peer that sees that the access is over sees all that it stored.
  ~RemoteAccess() { mine_->accessing.store(0, std::memory_order_release); }

 private:
  ControlBlock* mine_;
};

}  // namespace rondo::transport::shm
