// The direct protocol: all that peers read or store into lies in arenas, which every rank of the
// node has mapped. When all ranks have posted, each does its part in one pass over shared memory,
// a tile per step, and never waits. The operation is complete when every rank's part is, because
// only then may an input change again.

#include <algorithm>

#include "collective/algorithms.hpp"
#include "collective/blocks.hpp"
#include "collective/node/protocol.hpp"
#include "collective/team_work.hpp"
#include "reduce/reduce.hpp"

namespace rondo::transport {
namespace {

using shm::Collective;

// Bytes that one step works on: a tile for each thread.
std::size_t tile_bytes_of(const Group& group) { return threads_of(group.team) * tile_bytes; }

// Allreduce and reduce. Rank r reduces slice r (1/P of the elements, cut on cache lines) of all
// inputs in rank order and stores the result into all outputs (reduce: into the root's). Every
// element is computed once, so all ranks hold the same bits.
//
// Loads (P-1)/P * bytes; stores as many for allreduce, together what a ring sends, and bytes/P
// for reduce (the root: 0).
class DirectReduce final : public Operation {
 public:
  DirectReduce(Group& group, const Posted& posted);
  Progress step(Group& group, const Posted& posted) override;

 private:
  Reduction reduce_;
  std::size_t element_bytes_;
  std::size_t destinations_ = 0;
  std::size_t peers_stored_ = 0;  // of the destinations
  Range todo_;                    // elements
};

DirectReduce::DirectReduce(Group& group, const Posted& posted)
    : reduce_(find_reduction(posted.fingerprint.type, posted.fingerprint.op)),
      element_bytes_(size_of(posted.fingerprint.type)),
      todo_(slice(posted.fingerprint.count, group.count(), group.index(),
                  cache_line_bytes / element_bytes_)) {
  const bool to_all = posted.fingerprint.collective == Collective::allreduce;
  for (std::size_t r = 0; r < group.count(); ++r) {
    group.sources[r] = input_of(group, r, posted).data;
    if (to_all || posted.is_root(r)) {
      group.destinations[destinations_++] = output_of(group, r, posted);
      if (r != group.index()) peers_stored_ += 1;
    }
  }
}

Progress DirectReduce::step(Group& group, const Posted& /*posted*/) {
  const Range tile{todo_.begin,
                   std::min(todo_.end, todo_.begin + tile_bytes_of(group) / element_bytes_)};
  for_parts(group.team, tile.size() * element_bytes_, [&](const TeamPart& part) {
    reduce_(group.sources.data(), group.count(), group.destinations.data(), destinations_,
            tile.begin + part.begin / element_bytes_, tile.begin + part.end / element_bytes_);
  });
  const std::size_t bytes = tile.size() * element_bytes_;
  group.count_moved((group.count() - 1) * bytes, peers_stored_ * bytes);
  todo_.begin = tile.end;
  if (todo_.size() > 0) return Progress::moved;
  return Progress::done;
}

// Reduce-scatter: each rank reduces its own columns of all inputs, in rank order, into its output,
// wherever that lies. Loads P-1 times its own share; stores nothing into peers.
class DirectReduceScatter final : public Operation {
 public:
  DirectReduceScatter(Group& /*group*/, const Posted& posted)
      : reduce_(find_reduction(posted.fingerprint.type, posted.fingerprint.op)) {}

  Progress step(Group& group, const Posted& posted) override {
    const std::size_t end = std::min(posted.output.bytes(), position_ + tile_bytes_of(group));
    reduce_columns(group, posted, reduce_, {position_, end}, [&](std::size_t member) {
      return column_of(input_of(group, member, posted), posted, group.index());
    });
    position_ = end;
    if (position_ < posted.output.bytes()) return Progress::moved;
    return Progress::done;
  }

 private:
  Reduction reduce_;
  std::size_t position_ = 0;  // bytes of this rank's share
};

// Broadcast, allgather and alltoall: each rank copies what it needs out of its peers' inputs.
// Loads the bytes of the result that are not its own; stores nothing into peers.
class DirectPull final : public Operation {
 public:
  DirectPull(Group& /*group*/, const Posted& /*posted*/) {}
  Progress step(Group& group, const Posted& posted) override;

 private:
  struct Copy {
    Block into;
    ConstBlock from;
  };
  [[nodiscard]] static Copy copy_from(const Group& group, const Posted& posted, std::size_t member);

  std::size_t source_ = 0;    // members, beginning with this rank itself, to spread the load
  std::size_t position_ = 0;  // bytes of that member's share
};

// The data that this rank copies from `member`, and where to.
DirectPull::Copy DirectPull::copy_from(const Group& group, const Posted& posted,
                                       std::size_t member) {
  const ConstBlock input = input_of(group, member, posted);
  switch (posted.fingerprint.collective) {
    case Collective::allgather:
      return {column_of(posted.output, posted, member), input};
    case Collective::alltoall:
      return {column_of(posted.output, posted, member), column_of(input, posted, group.index())};
    default:
      return {posted.output, input};
  }
}

// One tile of one member; the root of a broadcast has nothing to copy.
Progress DirectPull::step(Group& group, const Posted& posted) {
  const bool one_sends = posted.fingerprint.collective == Collective::broadcast;
  const auto root = static_cast<std::size_t>(posted.fingerprint.root);
  const std::size_t sources = one_sends ? 1 : group.count();
  const std::size_t member = one_sends ? root : (group.index() + source_) % group.count();

  if (!one_sends || group.index() != root) {
    const Copy copy = copy_from(group, posted, member);
    const std::size_t bytes = std::min(tile_bytes_of(group), copy.into.bytes() - position_);
    copy_rows(group.team, copy.into, copy.from, position_, bytes);
    if (member != group.index()) group.count_moved(bytes);
    position_ += bytes;
    if (position_ < copy.into.bytes()) return Progress::moved;
  }

  position_ = 0;
  source_ += 1;
  if (source_ < sources) return Progress::moved;
  return Progress::done;
}

}  // namespace

constexpr Algorithm algorithms::direct_reduce = algorithm_of<DirectReduce>(
    Protocol::direct, &is_one_of<Collective::allreduce, Collective::reduce>);

constexpr Algorithm algorithms::direct_reduce_scatter =
    algorithm_of<DirectReduceScatter>(Protocol::direct, &is_one_of<Collective::reduce_scatter>);

constexpr Algorithm algorithms::direct_pull = algorithm_of<DirectPull>(
    Protocol::direct,
    &is_one_of<Collective::broadcast, Collective::allgather, Collective::alltoall>);

}  // namespace rondo::transport
