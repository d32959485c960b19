#include "node/direct_reduce.hpp"

#include <algorithm>

#include <rondo/transport/team.hpp>

#include "collective/traffic.hpp"
#include "node/slices.hpp"
#include "node/slots.hpp"

namespace rondo::transport {
namespace {

// One tile of a reduction, cut evenly over the threads of a team.
struct TileJob {
  const Group* group;
  Reduction reduce;
  std::size_t destinations;
  Range tile;
  std::size_t unit;
  std::size_t parts;

  static void run(void* context, int index) {
    const auto& job = *static_cast<const TileJob*>(context);
    const Range part = slice(job.tile.size(), job.parts, static_cast<std::size_t>(index), job.unit);
    job.reduce(job.group->sources.data(), job.group->count(), job.group->destinations.data(),
               job.destinations, job.tile.begin + part.begin, job.tile.begin + part.end);
  }
};

}  // namespace

DirectReduce::DirectReduce(Group& group, const Posted& posted)
    : reduce_(find_reduction(posted.fingerprint.type, posted.fingerprint.op)),
      element_bytes_(size_of(posted.fingerprint.type)),
      todo_(slice(posted.fingerprint.count, group.count(), group.index(),
                  cache_line_bytes / element_bytes_)) {
  const bool to_all = posted.fingerprint.collective == shm::Collective::allreduce;
  for (std::size_t r = 0; r < group.count(); ++r) {
    group.sources[r] = remote_input(group, r, posted).data;
    if (to_all || posted.fingerprint.root == static_cast<std::int32_t>(r)) {
      group.destinations[destinations_++] = remote_output(group, r, posted);
    }
  }
}

Progress DirectReduce::step(Group& group, const Posted& posted) {
  const std::size_t threads =
      group.team == nullptr ? 1 : static_cast<std::size_t>(group.team->size());
  const std::size_t elements = threads * tile_bytes / element_bytes_;
  TileJob job{.group = &group,
              .reduce = reduce_,
              .destinations = destinations_,
              .tile = {todo_.begin, std::min(todo_.end, todo_.begin + elements)},
              .unit = cache_line_bytes / element_bytes_,
              .parts = threads};
  if (threads == 1) {
    TileJob::run(&job, 0);
  } else {
    group.team->run(&TileJob::run, &job);
  }
  todo_.begin = job.tile.end;
  if (todo_.size() > 0) return Progress::moved;
  count(*group.counters, traffic_of(posted, Protocol::direct, group.index(), group.count()));
  return Progress::done;
}

bool DirectReduce::waits_for(const Group& /*group*/, std::size_t /*member*/) const { return false; }

}  // namespace rondo::transport
