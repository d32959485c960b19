#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <memory_resource>
#include <new>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <rondo/transport/allreduce_paths.hpp>
#include <rondo/transport/block.hpp>
#include <rondo/transport/error.hpp>
#include <rondo/transport/world.hpp>

#include "base/cache_line.hpp"
#include "memory/control_block.hpp"
#include "memory/memory.hpp"

// Defines what an algorithm is (Algorithm, Operation), what it is given (Posted), what it knows
// about its communicator (Group), the list of algorithms, and which of them runs. Algorithms see
// nothing else of the transport.

namespace rondo::transport {

class Channel;
class Team;
struct Hierarchy;

/// Which algorithm an allreduce takes, by its bytes; the same on all ranks.
///
/// As text, "rd:0-16k;ring:16k-max": from the first number of bytes on, up to below the second.
/// Numbers end in k, m or g for powers of 1024; the ranges follow each other from 0 to max.
///
/// Where nodes have several ranks, the node's ranks reduce first, and the algorithm runs between
/// nodes. "flat-rd", "flat-rh" and "flat-ring" run it between all ranks instead, and keep the other
/// collectives of so many bytes flat as well.
class AlgorithmTable {
 public:
  /// "rd:0-16k;ring:16k-max".
  AlgorithmTable() noexcept;
  /// The default for so many ranks, which all talk over links: doubling, halving and a ring, each
  /// up to the size at which the next becomes faster by the closed forms.
  [[nodiscard]] static AlgorithmTable for_ranks(std::size_t ranks) noexcept;

  /// One algorithm for all sizes, not flat.
  [[nodiscard]] static AlgorithmTable only(AllreduceAlgorithm algorithm) noexcept;

  /// Throws std::invalid_argument, which says where `text` is wrong and what is expected.
  [[nodiscard]] static AlgorithmTable parse(std::string_view text);
  [[nodiscard]] std::string print() const;

  [[nodiscard]] AllreduceAlgorithm pick(std::size_t bytes) const noexcept;
  /// Are collectives other than allreduce, which know no halving, to send few messages rather than
  /// few bytes? So are those of sizes that go by doubling; by default also up to where a ring would
  /// follow it.
  [[nodiscard]] bool is_short(std::size_t bytes) const noexcept;
  /// Do all ranks talk over links, whichever nodes they are on?
  [[nodiscard]] bool is_flat(std::size_t bytes) const noexcept;

 private:
  static constexpr std::size_t most_ranges = 8;
  struct Range {
    AllreduceAlgorithm algorithm = AllreduceAlgorithm::ring;
    bool flat = false;
    std::size_t end = 0;  // bytes; the largest number for the last range
  };

  [[nodiscard]] const Range& range_of(std::size_t bytes) const noexcept;

  void add(Range range, std::string_view text);

  std::array<Range, most_ranges> ranges_;
  std::size_t count_ = 0;
  std::size_t short_end_ = 0;  // bytes; what is below it is short, whatever its range says
};

/// Memory for the operation that runs, which begins on a cache line. It lies in an arena, where
/// links have registered it and peers reach it; in ordinary memory where the arena cannot grow. It
/// grows on first use, so that later operations of the same size allocate nothing, and is given
/// back when this ends.
class Scratch {
 public:
  /// Without an arena it is ordinary memory. The arena is lent.
  explicit Scratch(std::pmr::memory_resource* arena = nullptr) noexcept : arena_(arena) {}

  /// Memory that was taken before must not be used any more.
  [[nodiscard]] std::span<std::byte> take(std::size_t bytes) {
    if (bytes > memory_.get_deleter().bytes) grow(bytes);
    return {memory_.get(), bytes};
  }

 private:
  struct Release {
    Release() noexcept : Release(nullptr, 0) {}
    Release(std::pmr::memory_resource* resource, std::size_t size) noexcept
        : from(resource), bytes(size) {}
    void operator()(std::byte* memory) const { from->deallocate(memory, bytes, cache_line_bytes); }

    std::pmr::memory_resource* from;
    std::size_t bytes;
  };
  using Memory = std::unique_ptr<std::byte[], Release>;

  static Memory allocate(std::pmr::memory_resource& from, std::size_t bytes) {
    return {static_cast<std::byte*>(from.allocate(bytes, cache_line_bytes)), Release(&from, bytes)};
  }
  // The old memory goes first: nothing in it is needed, and large scratch is not kept twice.
  void grow(std::size_t bytes) {
    memory_ = Memory();
    if (arena_ != nullptr) {
      try {
        memory_ = allocate(*arena_, bytes);
        return;
      } catch (const Error&) {  // The arena is full: messages cost more then.
      }
    }
    memory_ = allocate(*std::pmr::new_delete_resource(), bytes);
  }

  std::pmr::memory_resource* arena_;
  Memory memory_ = {};
};

/// One rank of a communicator, as this process sees it.
struct Member {
  int world_rank = 0;
  std::uint16_t port = 0;  ///< for messages to it, see Ports
  shm::RankMemory* memory = nullptr;
  shm::ControlBlock* block = nullptr;
};

/// The facts that an algorithm knows about the communicator that it runs on.
struct Group {
  int rank = 0;
  std::vector<Member> members = {};
  Team* team = nullptr;
  Counters* counters = nullptr;

  /// Messages to the other members; null while all that the communicator does is shared memory.
  const Channel* channel = nullptr;
  /// Null when all members are on one node.
  Hierarchy* levels = nullptr;
  Scratch scratch = Scratch();
  /// The most bytes of one message of a collective, where an algorithm can choose; the same on
  /// all ranks. 256 KiB suit RDMA.
  std::size_t segment_bytes = std::size_t{512} << 10U;
  /// How an allreduce runs over links; the same on all ranks.
  AlgorithmTable allreduce_table = {};

  /// Rounds of staged operations that are over; the same on all ranks.
  std::uint64_t staged_rounds = 0;
  /// Set by whoever stores a flag that peers may sleep for.
  bool published = false;

  /// Scratch of size() addresses each, `sources` for each thread of the team where members share
  /// memory, so that no operation allocates.
  std::vector<const std::byte*> sources = {};
  std::vector<std::byte*> destinations = {};

  [[nodiscard]] int size() const noexcept { return static_cast<int>(members.size()); }
  [[nodiscard]] std::size_t count() const noexcept { return members.size(); }
  [[nodiscard]] std::size_t index() const noexcept { return static_cast<std::size_t>(rank); }
  [[nodiscard]] shm::ControlBlock& mine() const noexcept { return *members[index()].block; }

  /// Gives the group, whose members are known, what it works with; lent.
  void equip(Team* threads, Counters& counts, const Channel& messages,
             std::pmr::memory_resource& arena);

  /// Each loop over peers' memory tells what it has just read there, and stored.
  void count_moved(std::size_t loaded_bytes, std::size_t stored_bytes = 0) const noexcept {
    counters->loaded_bytes += loaded_bytes;
    counters->stored_bytes += stored_bytes;
  }
};

/// How the bytes of an operation travel. Inside a node few bytes are `small`; for the others it
/// matters whether every rank's buffers lie in arenas.
enum class Protocol : std::uint8_t {
  small,   ///< in the slots: everyone writes its own, everyone reads all
  direct,  ///< straight between the ranks' arenas
  staged,  ///< through staging buffers
  links,   ///< as messages: between nodes all, inside a node what has parts of any length
};

/// The outcome of one step of an operation.
enum class Progress : std::uint8_t {
  idle,   ///< nothing: it waits for a peer
  moved,  ///< something, and there is more to do
  done,   ///< this rank's part is over: it reads and writes nothing of the operation any more
};

/// A posted operation: the arguments, checked, without their types.
struct Posted {
  std::uint64_t sequence = 0;
  shm::Fingerprint fingerprint = {};
  ConstBlock input = {};
  Block output = {};  ///< where the result goes; the same memory for in-place operations
  /// Where ranks have shares (allgather, reduce_scatter, alltoall): bytes of a row of each share,
  /// when all are equal; else of each rank's.
  std::size_t row_bytes_each = 0;
  std::vector<std::size_t> row_bytes_of = {};
  /// Where ranks have parts of their own for others (gather, scatter, alltoallv): where in the
  /// input that for each rank begins, and where the last ends; and the same of the output. Filled
  /// only where there are several parts, in bytes. Also of the exchange of a hierarchical
  /// allgather, whose shares do not lie side by side in the output.
  std::vector<std::size_t> sent_at = {};
  std::vector<std::size_t> received_at = {};

  /// Bytes of a row of `rank`'s share.
  [[nodiscard]] std::size_t share_row_bytes(std::size_t rank) const noexcept {
    return row_bytes_of.empty() ? row_bytes_each : row_bytes_of[rank];
  }
  /// Is `member` the root? Only of operations that have one.
  [[nodiscard]] bool is_root(std::size_t member) const noexcept {
    return fingerprint.root == static_cast<std::int32_t>(member);
  }
};

/// One rank's part of one posted operation: a small state with a step. Lives in its record; sees
/// peers through the Group only.
class Operation {
 public:
  Operation() = default;
  Operation(const Operation&) = delete;
  Operation& operator=(const Operation&) = delete;
  virtual ~Operation() = default;

  /// Does a bounded amount of work without waiting.
  virtual Progress step(Group& group, const Posted& posted) = 0;

  /// Has the member not yet done what the next step waits for? For reports about stalls. By
  /// default the operation never waits.
  [[nodiscard]] virtual bool waits_for(const Group& /*group*/, std::size_t /*member*/) const {
    return false;
  }
};

/// Bytes that one step of an operation works on, per thread.
inline constexpr std::size_t tile_bytes = std::size_t{64} << 10U;

/// No operation is larger: a record keeps so much memory for whichever runs.
inline constexpr std::size_t largest_operation_bytes = std::size_t{8} << 10U;

/// A way to run a collective: when it suits, and how its operation is made. Every algorithm is one
/// constant of this type in the file of its class, and one line in collective/algorithms.hpp.
struct Algorithm {
  Protocol protocol;
  bool (*suits)(const Group& group, const Posted& posted);
  std::size_t bytes;  ///< of its operation
  Operation* (*construct)(void* memory, Group& group, const Posted& posted);
};

/// The algorithm whose operations are of class `Op`, constructed from the group and what was
/// posted.
template <typename Op>
[[nodiscard]] constexpr Algorithm algorithm_of(Protocol protocol,
                                               bool (*suits)(const Group& group,
                                                             const Posted& posted)) {
  static_assert(sizeof(Op) <= largest_operation_bytes);
  static_assert(alignof(Op) <= alignof(std::max_align_t));
  return {protocol, suits, sizeof(Op),
          [](void* memory, Group& group, const Posted& posted) -> Operation* {
            return ::new (memory) Op(group, posted);
          }};
}

/// For Algorithm::suits: was one of `which` posted?
template <shm::Collective... which>
[[nodiscard]] bool is_one_of(const Group& /*group*/, const Posted& posted) {
  return ((posted.fingerprint.collective == which) || ...);
}

/// Memory for one operation at a time, whatever its class: to start one allocates nothing.
template <std::size_t bytes = largest_operation_bytes>
class OperationStorage {
 public:
  OperationStorage() = default;
  OperationStorage(const OperationStorage&) = delete;
  OperationStorage& operator=(const OperationStorage&) = delete;
  ~OperationStorage() { clear(); }

  /// Ends the operation that is there, and starts another.
  Operation& start(const Algorithm& algorithm, Group& group, const Posted& posted) {
    if (algorithm.bytes > bytes) throw std::logic_error("no memory for so large an operation");
    clear();
    operation_ = algorithm.construct(memory_.data(), group, posted);
    return *operation_;
  }
  /// The same with an operation that is no collective.
  template <typename Op, typename... Arguments>
  Op& emplace(Arguments&&... arguments) {
    static_assert(sizeof(Op) <= bytes && alignof(Op) <= alignof(std::max_align_t));
    clear();
    Op* const made = ::new (memory_.data()) Op(std::forward<Arguments>(arguments)...);
    operation_ = made;
    return *made;
  }
  void clear() noexcept {
    if (operation_ != nullptr) std::destroy_at(std::exchange(operation_, nullptr));
  }
  /// Null when there is none.
  [[nodiscard]] Operation* operation() const noexcept { return operation_; }

 private:
  alignas(std::max_align_t) std::array<std::byte, bytes> memory_;
  Operation* operation_ = nullptr;
};

// The list of algorithms. The first algorithm of an operation's protocol that suits the operation
// runs. To add an algorithm: one file with its class and its constant, and one line here.
#define RONDO_TRANSPORT_ALGORITHMS(ALGORITHM)                                   \
  /* Inside a node: collective/node/protocol.cpp, direct.cpp and staged.cpp. */ \
  ALGORITHM(small)                                                              \
  ALGORITHM(direct_reduce)                                                      \
  ALGORITHM(direct_reduce_scatter)                                              \
  ALGORITHM(direct_pull)                                                        \
  ALGORITHM(staged_reduce)                                                      \
  ALGORITHM(staged_exchange)                                                    \
  ALGORITHM(staged_pull)                                                        \
  /* Between nodes: the files of flat/ and hierarchical/, by algorithm.  */     \
  ALGORITHM(hierarchical_allreduce)                                             \
  ALGORITHM(hierarchical_reduce)                                                \
  ALGORITHM(hierarchical_broadcast)                                             \
  ALGORITHM(hierarchical_barrier)                                               \
  ALGORITHM(hierarchical_allgather)                                             \
  ALGORITHM(hierarchical_reduce_scatter)                                        \
  ALGORITHM(doubling_allreduce)                                                 \
  ALGORITHM(halving_allreduce)                                                  \
  ALGORITHM(ring)                                                               \
  ALGORITHM(tree_broadcast)                                                     \
  ALGORITHM(tree_reduce)                                                        \
  ALGORITHM(pairwise_alltoall)                                                  \
  ALGORITHM(exchange)                                                           \
  ALGORITHM(scan)                                                               \
  ALGORITHM(dissemination_barrier)

namespace algorithms {
#define RONDO_DECLARE(name) extern const Algorithm name;
RONDO_TRANSPORT_ALGORITHMS(RONDO_DECLARE)
#undef RONDO_DECLARE
}  // namespace algorithms

#define RONDO_ADDRESS(name) &algorithms::name,
inline constexpr const Algorithm* all_algorithms[] = {RONDO_TRANSPORT_ALGORITHMS(RONDO_ADDRESS)};
#undef RONDO_ADDRESS

/// The first of `among` that runs what was posted by this protocol. The same on all ranks.
[[nodiscard]] inline const Algorithm& choose(
    Protocol protocol, const Group& group, const Posted& posted,
    std::span<const Algorithm* const> among = all_algorithms) {
  for (const Algorithm* algorithm : among) {
    if (algorithm->protocol == protocol && algorithm->suits(group, posted)) return *algorithm;
  }
  throw std::logic_error("rondo::transport: no algorithm runs this collective");
}

/// Starts that one.
template <std::size_t bytes>
Operation& start(OperationStorage<bytes>& storage, Protocol protocol, Group& group,
                 const Posted& posted) {
  return storage.start(choose(protocol, group, posted), group, posted);
}

}  // namespace rondo::transport
