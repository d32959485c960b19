// The direct protocol: all that peers read or store into lies in arenas, which every rank of the
// node has mapped. When all ranks have posted, each does its part in one pass over shared memory,
// a tile per step, and never waits. The operation is complete when every rank's part is, because
// only then may an input change again.

#include <algorithm>

#include <rondo/transport/team.hpp>

#include "collective/algorithms.hpp"
#include "collective/blocks.hpp"
#include "node/protocol.hpp"
#include "reduce/reduce.hpp"

namespace rondo::transport {
namespace {

using shm::Collective;

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
  Range todo_;  // elements
};

// One tile of a reduction, cut evenly over the threads of a team.
struct TileTask {
  const Group* group;
  Reduction reduce;
  std::size_t destinations;
  Range tile;
  std::size_t unit;
  std::size_t parts;

  static void run(void* context, int index) {
    const auto& task = *static_cast<const TileTask*>(context);
    const Range part =
        slice(task.tile.size(), task.parts, static_cast<std::size_t>(index), task.unit);
    task.reduce(task.group->sources.data(), task.group->count(), task.group->destinations.data(),
                task.destinations, task.tile.begin + part.begin, task.tile.begin + part.end);
  }
};

DirectReduce::DirectReduce(Group& group, const Posted& posted)
    : reduce_(find_reduction(posted.fingerprint.type, posted.fingerprint.op)),
      element_bytes_(size_of(posted.fingerprint.type)),
      todo_(slice(posted.fingerprint.count, group.count(), group.index(),
                  cache_line_bytes / element_bytes_)) {
  const bool to_all = posted.fingerprint.collective == Collective::allreduce;
  for (std::size_t r = 0; r < group.count(); ++r) {
    group.sources[r] = remote_input(group, r, posted).data;
    if (to_all || posted.is_root(r)) {
      group.destinations[destinations_++] = remote_output(group, r, posted);
    }
  }
}

// With a team every thread reduces a tile of its own in each step.
Progress DirectReduce::step(Group& group, const Posted& posted) {
  const std::size_t threads =
      group.team == nullptr ? 1 : static_cast<std::size_t>(group.team->size());
  const std::size_t elements = threads * tile_bytes / element_bytes_;
  TileTask task{.group = &group,
                .reduce = reduce_,
                .destinations = destinations_,
                .tile = {todo_.begin, std::min(todo_.end, todo_.begin + elements)},
                .unit = cache_line_bytes / element_bytes_,
                .parts = threads};
  if (threads == 1) {
    TileTask::run(&task, 0);
  } else {
    group.team->run(&TileTask::run, &task);
  }
  todo_.begin = task.tile.end;
  if (todo_.size() > 0) return Progress::moved;
  return finish(group, posted, Protocol::direct);
}

// Reduce-scatter: each rank reduces its own columns of all inputs, in rank order, into its output,
// wherever that lies. Loads P-1 times its own share; stores nothing into peers.
class DirectReduceScatter final : public Operation {
 public:
  DirectReduceScatter(Group& /*group*/, const Posted& posted)
      : reduce_(find_reduction(posted.fingerprint.type, posted.fingerprint.op)) {}

  Progress step(Group& group, const Posted& posted) override {
    const std::size_t end = std::min(posted.output.bytes(), position_ + tile_bytes);
    reduce_columns(group, posted, reduce_, {position_, end}, [&](std::size_t member) {
      return column_of(remote_input(group, member, posted), posted, group.index());
    });
    position_ = end;
    if (position_ < posted.output.bytes()) return Progress::moved;
    return finish(group, posted, Protocol::direct);
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

// What this rank copies from `member`, and where to.
DirectPull::Copy DirectPull::copy_from(const Group& group, const Posted& posted,
                                       std::size_t member) {
  const ConstBlock input = remote_input(group, member, posted);
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
    const std::size_t bytes = std::min(tile_bytes, copy.into.bytes() - position_);
    copy_rows(copy.into, copy.from, position_, bytes);
    position_ += bytes;
    if (position_ < copy.into.bytes()) return Progress::moved;
  }

  position_ = 0;
  source_ += 1;
  if (source_ < sources) return Progress::moved;
  return finish(group, posted, Protocol::direct);
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
