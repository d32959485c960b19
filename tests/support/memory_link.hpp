#pragma once

// A wire in memory, whose delays, disorder and faults a test scripts. A test that includes this
// links support/memory_link.cpp and transport's private parts.

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <limits>
#include <list>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "message/link.hpp"

namespace rondo::test {

class MemoryLink;

/// How a MemoryFabric treats messages.
struct MemoryScript {
  /// Sends of up to so many bytes are done at once; longer ones when they have been received.
  std::size_t eager_bytes = 0;
  /// How often the receiver must call progress() before it can see message `number` (counted
  /// from 0) from rank `from` to rank `to`. Messages of one sender with one tag stay in order,
  /// whatever this says; all others may overtake each other.
  std::function<int(int from, int to, std::uint64_t number)> delay = {};
};

/// The wire between some ranks: one Link each.
///
/// Nothing depends on clocks or chance: ranks that are stepped in the same order see the same. Its
/// links may also be used by a thread each. The fabric outlives what is posted on its links.
class MemoryFabric {
 public:
  explicit MemoryFabric(int ranks, MemoryScript script = {});
  MemoryFabric(const MemoryFabric&) = delete;
  MemoryFabric& operator=(const MemoryFabric&) = delete;
  ~MemoryFabric();

  [[nodiscard]] transport::Link& link(int rank);

  /// From now on every transfer between the two ranks fails, also those that are pending.
  void cut(int a, int b);
  /// Cuts the two ranks when `messages` more have been sent from `a` to `b`.
  void cut_after(int a, int b, std::uint64_t messages);

  /// Sends and receives that some link still refers to.
  [[nodiscard]] std::size_t pending() const;
  /// Messages sent so far.
  [[nodiscard]] std::uint64_t sent() const;

 private:
  friend class MemoryLink;

  struct Message {
    int from = 0;
    int to = 0;
    std::uint64_t tag = 0;
    std::span<const std::byte> data = {};
    std::vector<std::byte> copy = {};         // of an eager message
    transport::Transfer* transfer = nullptr;  // null once the sender need not be told
    int delay = 0;
  };
  struct Receive {
    int from = 0;
    int to = 0;
    std::uint64_t tag = 0;
    std::span<std::byte> into = {};
    transport::Transfer* transfer = nullptr;
  };
  // The result that a rank's next progress() will store into its own transfer.
  struct Ending {
    transport::Transfer* transfer = nullptr;
    std::int32_t error = 0;
    std::uint64_t bytes = 0;
  };
  // One direction between two ranks.
  struct Wire {
    bool cut = false;
    std::uint64_t messages = 0;
    std::uint64_t cut_at = std::numeric_limits<std::uint64_t>::max();
  };

  void send(int from, int to, std::uint64_t tag, std::span<const std::byte> data,
            transport::Transfer& transfer);
  void receive(int from, int to, std::uint64_t tag, std::span<std::byte> into,
               transport::Transfer& transfer);
  bool progress(int rank);
  void cancel(int rank, transport::Transfer& transfer);

  void cut_locked(int a, int b);
  void end(int rank, transport::Transfer* transfer, std::int32_t error, std::uint64_t bytes);
  [[nodiscard]] std::list<Message>::iterator match(const Receive& receive);
  bool deliver(int rank);
  [[nodiscard]] Wire& wire(int from, int to);

  MemoryScript script_;
  int ranks_;
  mutable std::mutex mutex_;
  std::vector<std::unique_ptr<MemoryLink>> links_;
  std::vector<Wire> wires_;
  std::list<Message> messages_;
  std::list<Receive> receives_;
  std::vector<std::deque<Ending>> endings_;  // of each rank
};

}  // namespace rondo::test
