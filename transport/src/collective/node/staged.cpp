// The staged protocol: some of what peers need is in ordinary memory, which they cannot reach. So
// it goes through staging buffers in shared memory, one round (a buffer full) at a time.
//
// Each rank has staging_buffers of them per communicator, made on first use in its control
// segment. Round k (counted over the life of the communicator, alike on all ranks) uses buffer
// k mod staging_buffers. Every round has up to three stages on every rank:
//
//   fill     copy this rank's data into its own buffer; then staged_filled = k + 1
//   use      read what the peers have filled, and perhaps store into their buffers;
//            then staged_read = staged_reduced = k + 1
//   collect  copy out what the peers have stored into the own buffer (StagedReduce only)
//
// A rank fills a buffer again only when all peers have used it. So the stages of different rounds
// overlap as far as the buffers reach. StagedOperation is this engine; the three classes below it
// say what is copied where.

#include <algorithm>
#include <atomic>
#include <cstring>

#include "collective/algorithms.hpp"
#include "collective/blocks.hpp"
#include "collective/node/protocol.hpp"
#include "reduce/reduce.hpp"

namespace rondo::transport {
namespace {

using shm::Collective;
using shm::ControlBlock;
using StagedFlag = std::atomic<std::uint64_t> ControlBlock::*;

// Throws Error(out_of_memory).
void make_staging(const Group& group) {
  const Member& me = group.members[group.index()];
  if (me.block->staging.load(std::memory_order_relaxed) != 0) return;
  const std::uint64_t offset = shm::append(me.memory->control(), staging_buffers * staging_bytes);
  // Relaxed: staged_filled, stored later with release, makes it visible.
  me.block->staging.store(offset, std::memory_order_relaxed);
}

// The buffer of round `round` of `member`, which has filled it.
std::byte* staging_of(const Group& group, std::size_t member, std::uint64_t round) noexcept {
  const Member& owner = group.members[member];
  return owner.memory->control().base() + owner.block->staging.load(std::memory_order_relaxed) +
         (round % staging_buffers) * staging_bytes;
}

// Acquire: what the peer wrote before it raised the flag is read next; and, for staged_read, its
// reads come before the store that reuses the buffer.
bool has_reached(const Group& group, std::size_t member, StagedFlag flag, std::uint64_t rounds) {
  return (group.members[member].block->*flag).load(std::memory_order_acquire) >= rounds;
}

// Release: everything this rank wrote into (or read from) the buffers comes first.
void publish(Group& group, StagedFlag flag, std::uint64_t rounds) noexcept {
  (group.mine().*flag).store(rounds, std::memory_order_release);
  group.published = true;
}

// In what the staged operations differ beside their stages.
struct StagedTraits {
  bool fills_ahead = false;  // fills as many buffers as it can before it uses one
  bool collects = false;     // has a third stage
  int only_sender = -1;      // the member whose data alone is used; -1: everyone's
};

class StagedOperation : public Operation {
 public:
  Progress step(Group& group, const Posted& posted) final {
    const bool moved = advance(group, posted);
    if (collected_ < end_) return moved ? Progress::moved : Progress::idle;
    return Progress::done;
  }
  [[nodiscard]] bool waits_for(const Group& group, std::size_t member) const final;

 protected:
  // As many rounds as the longest share takes, of which a round carries `round_bytes`.
  StagedOperation(Group& group, std::size_t longest_share, std::size_t round_bytes,
                  const StagedTraits& traits)
      : traits_(traits),
        round_bytes_(round_bytes),
        first_(group.staged_rounds),
        end_(first_ + (longest_share + round_bytes - 1) / round_bytes),
        filled_(first_),
        used_(first_),
        collected_(first_) {
    make_staging(group);
    group.staged_rounds = end_;
  }

  [[nodiscard]] bool sends(std::size_t member) const noexcept {
    return traits_.only_sender < 0 || static_cast<std::size_t>(traits_.only_sender) == member;
  }
  // Bytes of a share of `share` bytes that a round carries.
  [[nodiscard]] Range window(std::uint64_t round, std::size_t share) const noexcept {
    const std::size_t begin = std::min(share, (round - first_) * round_bytes_);
    return {begin, std::min(share, begin + round_bytes_)};
  }

 private:
  virtual void fill(Group& group, const Posted& posted, std::uint64_t round) = 0;
  virtual void use(Group& group, const Posted& posted, std::uint64_t round) = 0;
  virtual void collect(Group& /*group*/, const Posted& /*posted*/, std::uint64_t /*round*/) {}

  [[nodiscard]] bool may_fill(const Group& group) const;
  [[nodiscard]] bool may_use(const Group& group) const;
  [[nodiscard]] bool may_collect(const Group& group) const;
  bool advance(Group& group, const Posted& posted);
  void fill_next(Group& group, const Posted& posted);
  void use_next(Group& group, const Posted& posted);

  StagedTraits traits_;
  std::size_t round_bytes_;
  // Rounds: the first and the end of this operation, and how far its stages have come.
  std::uint64_t first_;
  std::uint64_t end_;
  std::uint64_t filled_;
  std::uint64_t used_;
  std::uint64_t collected_;
};

// This rank, too, reads from its own buffer: filling must not run further ahead of that.
bool StagedOperation::may_fill(const Group& group) const {
  if (filled_ == end_ || filled_ >= collected_ + staging_buffers) return false;
  if (!sends(group.index()) || filled_ < staging_buffers) return true;
  for (std::size_t r = 0; r < group.count(); ++r) {
    if (r != group.index() &&
        !has_reached(group, r, &ControlBlock::staged_read, filled_ - staging_buffers + 1)) {
      return false;
    }
  }
  return true;
}

bool StagedOperation::may_use(const Group& group) const {
  if (used_ == filled_) return false;
  for (std::size_t r = 0; r < group.count(); ++r) {
    if (r != group.index() && sends(r) &&
        !has_reached(group, r, &ControlBlock::staged_filled, used_ + 1)) {
      return false;
    }
  }
  return true;
}

bool StagedOperation::may_collect(const Group& group) const {
  if (!traits_.collects || collected_ == used_) return false;
  for (std::size_t r = 0; r < group.count(); ++r) {
    if (r != group.index() &&
        !has_reached(group, r, &ControlBlock::staged_reduced, collected_ + 1)) {
      return false;
    }
  }
  return true;
}

// The oldest round that can go on goes first, because peers have waited for it longest.
bool StagedOperation::advance(Group& group, const Posted& posted) {
  if (traits_.fills_ahead && may_fill(group)) {
    fill_next(group, posted);
  } else if (may_collect(group)) {
    collect(group, posted, collected_++);
  } else if (may_use(group)) {
    use_next(group, posted);
  } else if (may_fill(group)) {
    fill_next(group, posted);
  } else {
    return false;
  }
  return true;
}

void StagedOperation::fill_next(Group& group, const Posted& posted) {
  fill(group, posted, filled_);
  publish(group, &ControlBlock::staged_filled, ++filled_);
}

// Afterwards no peer's buffer is read or written in this round. All operations raise both flags,
// because the next one, whatever it is, counts on them.
void StagedOperation::use_next(Group& group, const Posted& posted) {
  use(group, posted, used_);
  used_ += 1;
  if (!traits_.collects) collected_ = used_;
  publish(group, &ControlBlock::staged_read, used_);
  publish(group, &ControlBlock::staged_reduced, used_);
}

bool StagedOperation::waits_for(const Group& group, std::size_t member) const {
  if (collected_ < used_) {
    return !has_reached(group, member, &ControlBlock::staged_reduced, collected_ + 1);
  }
  if (used_ < filled_) {
    return sends(member) && !has_reached(group, member, &ControlBlock::staged_filled, used_ + 1);
  }
  return filled_ >= staging_buffers &&
         !has_reached(group, member, &ControlBlock::staged_read, filled_ - staging_buffers + 1);
}

// Allreduce and reduce.
//
// The data of a round is cut into one slice per rank. A rank fills its buffer with the peers'
// slices; reduces its own slice from all buffers, in rank order, into its output and, at the same
// offset, into the peers' buffers (reduce: into the root's alone); and collects what the peers have
// stored into its buffer. A line of a buffer thus crosses twice, once with an input and once with
// the result, and its owner has it back when it fills it again. The own slice is never copied.
//
// Loads and stores, per rank, (P-1) times the own slice of each round, as between arenas.
class StagedReduce final : public StagedOperation {
 public:
  StagedReduce(Group& group, const Posted& posted)
      : StagedOperation(group, posted.input.bytes(), staging_bytes, {.collects = true}),
        reduce_(find_reduction(posted.fingerprint.type, posted.fingerprint.op)),
        element_bytes_(size_of(posted.fingerprint.type)),
        to_all_(posted.fingerprint.collective == Collective::allreduce) {}

 private:
  [[nodiscard]] bool receives(const Posted& posted, std::size_t member) const noexcept {
    return to_all_ || posted.is_root(member);
  }
  void fill(Group& group, const Posted& posted, std::uint64_t round) override;
  void use(Group& group, const Posted& posted, std::uint64_t round) override;
  void collect(Group& group, const Posted& posted, std::uint64_t round) override;

  Reduction reduce_;
  std::size_t element_bytes_;
  bool to_all_;
};

// Copies `bytes` bytes but those in `hole`.
void copy_around(Team* team, std::byte* into, const std::byte* from, std::size_t bytes,
                 const Range& hole) {
  for_pieces(team, [&](Pieces& pieces) {
    const auto copy = [&](std::size_t begin, const Range& part) {
      std::memcpy(into + begin + part.begin, from + begin + part.begin, part.size());
    };
    pieces.next(hole.begin, [&](const Range& part) { copy(0, part); });
    pieces.next(bytes - hole.end, [&](const Range& part) { copy(hole.end, part); });
  });
}

void StagedReduce::fill(Group& group, const Posted& posted, std::uint64_t round) {
  const Range bytes = window(round, posted.input.bytes());
  const Range own = slice(bytes.size(), group.count(), group.index(), cache_line_bytes);
  copy_around(group.team, staging_of(group, group.index(), round), posted.input.data + bytes.begin,
              bytes.size(), own);
}

void StagedReduce::use(Group& group, const Posted& posted, std::uint64_t round) {
  const Range bytes = window(round, posted.input.bytes());
  const Range own = slice(bytes.size(), group.count(), group.index(), cache_line_bytes);
  std::size_t destinations = 0;
  for (std::size_t r = 0; r < group.count(); ++r) {
    std::byte* const staged = staging_of(group, r, round);
    const bool mine = r == group.index();
    group.sources[r] = mine ? posted.input.data + bytes.begin : staged;
    if (receives(posted, r)) {
      group.destinations[destinations++] = mine ? posted.output.data + bytes.begin : staged;
    }
  }
  for_parts(group.team, own.size(), [&](const TeamPart& part) {
    reduce_(group.sources.data(), group.count(), group.destinations.data(), destinations,
            (own.begin + part.begin) / element_bytes_, (own.begin + part.end) / element_bytes_);
  });
  const std::size_t peers_stored = destinations - (receives(posted, group.index()) ? 1 : 0);
  group.count_moved((group.count() - 1) * own.size(), peers_stored * own.size());
}

void StagedReduce::collect(Group& group, const Posted& posted, std::uint64_t round) {
  if (!receives(posted, group.index())) return;
  const Range bytes = window(round, posted.input.bytes());
  const Range own = slice(bytes.size(), group.count(), group.index(), cache_line_bytes);
  copy_around(group.team, posted.output.data + bytes.begin, staging_of(group, group.index(), round),
              bytes.size(), own);
}

// Broadcast and allgather: whoever sends fills its buffer with its input, and whoever receives
// copies it out. Loads the bytes of the result that are not its own; stores nothing into peers.
class StagedPull final : public StagedOperation {
 public:
  StagedPull(Group& group, const Posted& posted)
      : StagedOperation(group, longest_share(group, posted), staging_bytes,
                        {.fills_ahead = true,
                         .only_sender = is_broadcast(posted) ? posted.fingerprint.root : -1}) {}

 private:
  static bool is_broadcast(const Posted& posted) noexcept {
    return posted.fingerprint.collective == Collective::broadcast;
  }
  static std::size_t share_bytes(const Posted& posted, std::size_t member) noexcept {
    if (is_broadcast(posted)) return posted.output.bytes();
    return posted.share_row_bytes(member) * posted.output.rows;
  }
  static std::size_t longest_share(const Group& group, const Posted& posted) noexcept {
    std::size_t longest = 0;
    for (std::size_t r = 0; r < group.count(); ++r) {
      longest = std::max(longest, share_bytes(posted, r));
    }
    return longest;
  }
  void fill(Group& group, const Posted& posted, std::uint64_t round) override;
  void use(Group& group, const Posted& posted, std::uint64_t round) override;
};

void StagedPull::fill(Group& group, const Posted& posted, std::uint64_t round) {
  if (!sends(group.index())) return;
  const Range bytes = window(round, posted.input.bytes());
  copy_from_rows(group.team, staging_of(group, group.index(), round), posted.input, bytes.begin,
                 bytes.size());
}

void StagedPull::use(Group& group, const Posted& posted, std::uint64_t round) {
  for_pieces(group.team, [&](Pieces& pieces) {
    Block column = posted.output;
    for (std::size_t r = 0; r < group.count(); ++r) {
      if (!is_broadcast(posted)) column.row_bytes = posted.share_row_bytes(r);
      const Range bytes = window(round, share_bytes(posted, r));
      const bool in_place = r == group.index() && column.data == posted.input.data;
      if (sends(r) && !in_place) {
        pieces.next(bytes.size(), [&](const Range& part) {
          copy_into_rows(nullptr, column, bytes.begin + part.begin,
                         staging_of(group, r, round) + part.begin, part.size());
        });
      }
      if (!is_broadcast(posted)) column.data += column.row_bytes;
    }
  });
  for (std::size_t r = 0; r < group.count(); ++r) {
    if (r != group.index() && sends(r)) {
      group.count_moved(window(round, share_bytes(posted, r)).size());
    }
  }
}

// Reduce-scatter and alltoall: every rank sends something else to every other. A buffer is cut
// into one lane per rank that receives anything. A rank fills the peers' lanes of its buffer with
// as much of their columns of the input as fits, and uses its own lanes of all buffers: it reduces
// them in rank order, or copies them out.
//
// Loads P-1 times its own share; stores nothing into peers.
class StagedExchange final : public StagedOperation {
 public:
  StagedExchange(Group& group, const Posted& posted)
      : StagedExchange(group, posted, Lanes(group, posted)) {}

 private:
  struct Lanes {
    Lanes(const Group& group, const Posted& posted);

    std::size_t longest_share = 0;
    std::size_t lane_bytes = 0;
    std::size_t own_lane = 0;   // this rank's
    std::size_t own_bytes = 0;  // of this rank's share
  };
  StagedExchange(Group& group, const Posted& posted, const Lanes& lanes)
      : StagedOperation(group, lanes.longest_share, lanes.lane_bytes, {}),
        reduce_(find_reduction(posted.fingerprint.type, posted.fingerprint.op)),
        reduces_(posted.fingerprint.collective == Collective::reduce_scatter),
        packs_own_(reduces_ && posted.input.rows > 1),
        lanes_(lanes) {}

  static std::size_t share_sent(const Posted& posted, std::size_t member) noexcept {
    return posted.share_row_bytes(member) * posted.input.rows;
  }
  [[nodiscard]] std::byte* lane_of(const Group& group, std::size_t sender, std::size_t lane,
                                   std::uint64_t round) const noexcept {
    return staging_of(group, sender, round) + lane * lanes_.lane_bytes;
  }
  void fill(Group& group, const Posted& posted, std::uint64_t round) override;
  void use(Group& group, const Posted& posted, std::uint64_t round) override;
  void reduce_lanes(Group& group, const Posted& posted, std::uint64_t round, const Range& bytes);
  void copy_lanes(const Group& group, const Posted& posted, std::uint64_t round,
                  const Range& bytes);

  Reduction reduce_;
  bool reduces_;
  bool packs_own_;  // the own columns are not dense, so they take a lane, too
  Lanes lanes_;
};

StagedExchange::Lanes::Lanes(const Group& group, const Posted& posted) {
  std::size_t count = 0;
  for (std::size_t r = 0; r < group.count(); ++r) {
    const std::size_t share = share_sent(posted, r);
    if (r == group.index()) {
      own_lane = count;
      own_bytes = share;
    }
    count += share > 0 ? 1 : 0;
    longest_share = std::max(longest_share, share);
  }
  lane_bytes = staging_bytes / count / cache_line_bytes * cache_line_bytes;
}

void StagedExchange::fill(Group& group, const Posted& posted, std::uint64_t round) {
  for_pieces(group.team, [&](Pieces& lanes) {
    std::size_t lane = 0;
    for (std::size_t r = 0; r < group.count(); ++r) {
      const std::size_t share = share_sent(posted, r);
      if (share == 0) continue;
      if (r != group.index() || packs_own_) {
        const Range bytes = window(round, share);
        lanes.next(bytes.size(), [&](const Range& part) {
          copy_from_rows(nullptr, lane_of(group, group.index(), lane, round) + part.begin,
                         column_of(posted.input, posted, r), bytes.begin + part.begin, part.size());
        });
      }
      lane += 1;
    }
  });
}

void StagedExchange::use(Group& group, const Posted& posted, std::uint64_t round) {
  const Range bytes = window(round, lanes_.own_bytes);
  if (bytes.size() == 0) return;
  if (reduces_) {
    reduce_lanes(group, posted, round, bytes);
  } else {
    copy_lanes(group, posted, round, bytes);
  }
  group.count_moved((group.count() - 1) * bytes.size());
}

void StagedExchange::reduce_lanes(Group& group, const Posted& posted, std::uint64_t round,
                                  const Range& bytes) {
  for (std::size_t r = 0; r < group.count(); ++r) {
    group.sources[r] = lane_of(group, r, lanes_.own_lane, round);
  }
  std::byte* into = posted.output.data + bytes.begin;
  if (packs_own_) {
    into = lane_of(group, group.index(), lanes_.own_lane, round);
  } else {
    group.sources[group.index()] =
        column_of(posted.input, posted, group.index()).data + bytes.begin;
  }
  const std::size_t element_bytes = size_of(posted.fingerprint.type);
  for_parts(group.team, bytes.size(), [&](const TeamPart& part) {
    reduce_(group.sources.data(), group.count(), &into, 1, part.begin / element_bytes,
            part.end / element_bytes);
    if (packs_own_) {
      copy_into_rows(nullptr, posted.output, bytes.begin + part.begin, into + part.begin,
                     part.size());
    }
  });
}

void StagedExchange::copy_lanes(const Group& group, const Posted& posted, std::uint64_t round,
                                const Range& bytes) {
  for_pieces(group.team, [&](Pieces& lanes) {
    for (std::size_t r = 0; r < group.count(); ++r) {
      lanes.next(bytes.size(), [&](const Range& part) {
        const std::size_t begin = bytes.begin + part.begin;
        const std::byte* from = r == group.index()
                                    ? column_of(posted.input, posted, r).data + begin
                                    : lane_of(group, r, lanes_.own_lane, round) + part.begin;
        copy_into_rows(nullptr, column_of(posted.output, posted, r), begin, from, part.size());
      });
    }
  });
}

}  // namespace

constexpr Algorithm algorithms::staged_reduce = algorithm_of<StagedReduce>(
    Protocol::staged, &is_one_of<Collective::allreduce, Collective::reduce>);

constexpr Algorithm algorithms::staged_exchange = algorithm_of<StagedExchange>(
    Protocol::staged, &is_one_of<Collective::reduce_scatter, Collective::alltoall>);

constexpr Algorithm algorithms::staged_pull = algorithm_of<StagedPull>(
    Protocol::staged, &is_one_of<Collective::broadcast, Collective::allgather>);

}  // namespace rondo::transport
