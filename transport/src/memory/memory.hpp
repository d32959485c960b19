#pragma once

#include <unistd.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

#include "memory/control_block.hpp"

// Memory that the ranks of a node share: file descriptors, memfds that grow in place, the two
// segments that each rank owns, and the rule by which peers touch each other's arenas.

namespace rondo::transport::shm {

/// Owns a file descriptor.
class Descriptor {
 public:
  Descriptor() noexcept = default;
  explicit Descriptor(int fd) noexcept : fd_(fd) {}
  Descriptor(Descriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor() {
    if (fd_ >= 0) ::close(fd_);
  }

  [[nodiscard]] int get() const noexcept { return fd_; }
  [[nodiscard]] bool valid() const noexcept { return fd_ >= 0; }

 private:
  int fd_ = -1;
};

/// One range of memory that several processes map, backed by a memfd.
///
/// The range that is reserved is large; memory is behind its first size() bytes only. The owner
/// grows it in place, and a process that has mapped it can use the new part without being told:
/// an address once given stays valid. It can never shrink (sealed), so no peer is hit by SIGBUS.
/// The addresses of 128 segments that a process maps one after another differ in bits 21 to 27, so
/// that the same offsets of several segments do not compete for the first-level cache.
class Segment {
 public:
  /// A new, empty segment. `name` shows up in /proc/PID/maps.
  [[nodiscard]] static Segment create(const char* name, std::size_t reserved_bytes);
  /// Maps another process' segment; takes the descriptor.
  [[nodiscard]] static Segment map(Descriptor memory, std::size_t reserved_bytes);

  Segment() noexcept = default;
  Segment(Segment&& other) noexcept;
  Segment& operator=(Segment&& other) noexcept;
  Segment(const Segment&) = delete;
  Segment& operator=(const Segment&) = delete;
  ~Segment();

  /// Puts memory behind the first `bytes` bytes, zeroed. Owner only. Throws
  /// Error(out_of_memory) when the reserve or the machine's memory is exhausted; then all is as
  /// before.
  void grow(std::size_t bytes);

  [[nodiscard]] std::byte* base() const noexcept { return base_; }
  [[nodiscard]] std::size_t size() const noexcept { return size_; }
  [[nodiscard]] std::size_t reserved() const noexcept { return reserved_; }
  [[nodiscard]] int descriptor() const noexcept { return memory_.get(); }
  /// A mapping needs no descriptor: only the owner grows the memory.
  void close_descriptor() noexcept { memory_ = Descriptor(); }

 private:
  Segment(Descriptor memory, std::size_t reserved_bytes);
  void give_back(std::size_t begin, std::size_t end) const noexcept;

  Descriptor memory_;
  std::byte* base_ = nullptr;
  std::size_t size_ = 0;
  std::size_t reserved_ = 0;
};

/// May a file of this process become so long? Shared memory is a file, too. Raises the soft limit
/// (`ulimit -f`) to the hard one if that suffices: beyond it the kernel ends the process by
/// SIGXFSZ.
[[nodiscard]] bool may_be_file_size(std::size_t bytes) noexcept;

/// Grows a segment of one's own by `bytes` bytes that begin on a new page; their offset.
[[nodiscard]] std::uint64_t append(Segment& segment, std::size_t bytes);

/// Addresses that each rank reserves for its segments; equal on all ranks of a node.
struct Reserve {
  std::size_t control_bytes = 0;
  std::size_t arena_bytes = 0;

  /// For `ranks` ranks that map each other: as much as the machine has memory, but together not
  /// more than 2 TiB, or four times that memory.
  [[nodiscard]] static Reserve of(int ranks);
  /// The same where the machine has so much memory.
  [[nodiscard]] static Reserve of(int ranks, std::size_t memory_bytes);
};

/// One rank's memory, as its owner or a peer sees it: a control segment, which begins with the
/// RankHeader and the World communicator's ControlBlock, and an arena.
class RankMemory {
 public:
  /// Makes this rank's own memory, ready for peers to map.
  [[nodiscard]] static std::shared_ptr<RankMemory> create(const Reserve& reserve,
                                                          std::uint64_t nonce);
  /// Maps a peer's, and closes the descriptors: a node of many ranks would run out of them. Throws
  /// Error(bootstrap_failed) when it is not the peer's.
  [[nodiscard]] static std::shared_ptr<RankMemory> map(Descriptor control, Descriptor arena,
                                                       const Reserve& reserve, std::uint64_t nonce);

  [[nodiscard]] RankHeader& header() const noexcept;
  /// The block at `offset` of the control segment.
  [[nodiscard]] ControlBlock& block(std::uint64_t offset) const noexcept;

  [[nodiscard]] Segment& control() noexcept { return control_; }
  [[nodiscard]] Segment& arena() noexcept { return arena_; }

  static constexpr std::uint64_t world_block = sizeof(RankHeader);

 private:
  Segment control_;
  Segment arena_;
};

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
