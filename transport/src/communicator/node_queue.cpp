// The queue of what hierarchical operations run on this node: a ring of a few operations, which are
// published, run and drained in the order posted.

#include "communicator/node_queue.hpp"

#include <utility>
#include <vector>

#include "collective/node/protocol.hpp"
#include "communicator/communicator_core.hpp"
#include "world/world_core.hpp"

namespace rondo::transport {
namespace {

// The members of `all` on this node.
Group members_here(const Group& all) {
  Group here;
  for (const Member& member : all.members) {
    if (member.block == nullptr) continue;
    if (&member == &all.members[all.index()]) here.rank = here.size();
    here.members.push_back(member);
  }
  return here;
}

}  // namespace

NodeQueue::NodeQueue(CommunicatorCore& core, std::size_t lane, std::uint64_t first)
    : core_(core),
      group_(members_here(core.group())),
      channel_(routes_of(core.world(), group_), group_.members[group_.index()].port,
               core.world().counters()),
      slots_(core, group_, first),
      ended_(first),
      over_(first),
      published_(first),
      posted_(first) {
  WorldCore& world = core.world();
  channel_.use_lane(lane);
  group_.equip(world.options().team, *core.group().counters, channel_, world.arena());
  at(first).posted.sequence = first;
}

void NodeQueue::post() {
  SlotOperation& operation = at(posted_++);
  operation.protocol = protocol_of(group_, operation.posted, core_.world().options().small_bytes);
  operation.stage = Stage::queued;
  operation.arrived = 0;
  at(posted_).posted.sequence = posted_;
}

bool NodeQueue::step() {
  bool moved = false;
  for (; published_ != posted_ && slots_.may_publish(at(published_)); ++published_, moved = true) {
    slots_.publish(at(published_), core_.current_->posted.fingerprint);
    at(published_).stage = Stage::published;
  }
  if (over_ != published_) moved = run_oldest() || moved;
  for (; ended_ != over_; ++ended_, moved = true) {
    SlotOperation& operation = at(ended_);
    if (operation.protocol != Protocol::small && !slots_.all_have_ended(operation)) break;
    operation.stage = Stage::complete;
  }
  core_.ring_sleepers(group_);
  return moved;
}

bool NodeQueue::run_oldest() {
  SlotOperation& operation = at(over_);
  if (operation.stage == Stage::published) {
    if (!slots_.all_have_posted(operation)) return false;
    slots_.start(operation, storage_);
    operation.stage = Stage::running;
  }
  const Progress progress = slots_.step(operation);
  if (progress != Progress::done) return progress == Progress::moved;
  slots_.end_own_part(operation);
  operation.stage = Stage::draining;
  over_ += 1;
  return true;
}

// For the oldest, and for what stands before the newest.
bool NodeQueue::waits_for(std::size_t node_rank) const {
  if (ended_ == posted_ || node_rank == group_.index()) return false;
  return slots_.is_late(at(ended_), node_rank) ||
         (over_ != posted_ && slots_.is_late(at(over_), node_rank));
}

}  // namespace rondo::transport
