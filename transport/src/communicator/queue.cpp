// The queue of a communicator: from a posted record to a complete operation.
//
// Inside a node a record is published in a slot of this rank's control block as soon as all peers
// have consumed what the slot held before. When all members' slots hold the same sequence, they are
// compared, the protocol is known, and the operation runs, one step per call of progress(). It has
// drained when all members have consumed it. Between nodes there are no slots: see multi_node.cpp.

#include <algorithm>
#include <memory>
#include <mutex>
#include <new>
#include <string>
#include <utility>

#include "base/best_effort.hpp"
#include "collective/algorithms.hpp"
#include "collective/blocks.hpp"
#include "collective/node/protocol.hpp"
#include "communicator/communicator_core.hpp"
#include "communicator/multi_node.hpp"
#include "memory/arena.hpp"
#include "memory/control_block.hpp"
#include "memory/memory.hpp"
#include "message/channel.hpp"
#include "recorder/names.hpp"
#include "world/world_core.hpp"

namespace rondo::transport {
namespace {

// A direct operation of so many bytes, of all ranks together, takes about a microsecond.
constexpr std::size_t most_brief_bytes = std::size_t{16} << 10U;

bool is_brief(Protocol protocol, const shm::Fingerprint& fingerprint) {
  return protocol == Protocol::small ||
         (protocol == Protocol::direct &&
          fingerprint.count * size_of(fingerprint.type) <= most_brief_bytes);
}

// Tells peers how they find the input of this rank, and its output if they store into it: as
// offsets in its arena, because each process maps it at an address of its own.
void locate(shm::Locator& locator, const Posted& posted, bool with_output, const ArenaCore& arena) {
  const ConstBlock& block = posted.input;
  locator.offset = arena.offset_of(block.data, extent_of(block));
  locator.output_offset =
      with_output ? arena.offset_of(posted.output.data, block.bytes()) : shm::private_memory;
  locator.rows = block.rows;
  locator.row_bytes = block.row_bytes;
  if (block.rows > 1) locator.stride_bytes = block.stride_bytes;
}

// Can it end well at no rank unless all have taken part? Where there is a root, or where lengths
// differ, it may.
bool needs_all(shm::Collective collective) {
  switch (collective) {
    case shm::Collective::allreduce:
    case shm::Collective::allgather:
    case shm::Collective::barrier:
    case shm::Collective::reduce_scatter:
    case shm::Collective::alltoall:
      return true;
    default:
      return false;
  }
}

// Do peers read the input of `member` in the direct protocol?
bool input_is_read(const shm::Fingerprint& fingerprint, std::size_t member) {
  return fingerprint.collective != shm::Collective::broadcast ||
         fingerprint.root == static_cast<std::int32_t>(member);
}

// Do peers store into the output of `member` in the direct protocol?
bool output_is_written(const shm::Fingerprint& fingerprint, std::size_t member) {
  return fingerprint.collective == shm::Collective::allreduce ||
         (fingerprint.collective == shm::Collective::reduce &&
          fingerprint.root == static_cast<std::int32_t>(member));
}

bool in_arena(std::uint64_t offset) {
  return offset != shm::private_memory && offset != shm::bulk_memory;
}

// Does the direct protocol need memory of `member` that no other rank can reach?
bool out_of_reach(const shm::Fingerprint& fingerprint, const shm::Locator& locator,
                  std::size_t member) {
  const bool empty = locator.rows * locator.row_bytes == 0;
  return !empty && ((input_is_read(fingerprint, member) && !in_arena(locator.offset)) ||
                    (output_is_written(fingerprint, member) && !in_arena(locator.output_offset)));
}

// Would it be a small operation, had two ranks not a faster way between arenas?
bool small_out_of_arenas(const Posted& posted, const Group& group, const WorldOptions& options) {
  return group.count() == 2 && posted.fingerprint.collective == shm::Collective::allreduce &&
         posted.input.bytes() <= options.small_bytes;
}

// Messages to ranks of this node go through shared memory, others through the World's fabric.
std::vector<Channel::Route> routes_of(const WorldCore& world, const Group& group) {
  std::vector<Channel::Route> routes;
  for (const Member& member : group.members) {
    const bool same_node = world.same_node(member.world_rank);
    routes.push_back({.world_rank = member.world_rank,
                      .link = world.link_to(member.world_rank),
                      .leaves_node = !same_node,
                      .port = member.port});
  }
  return routes;
}

}  // namespace

CommunicatorCore::CommunicatorCore(std::shared_ptr<WorldCore> world, Group group,
                                   std::uint64_t block, std::uint64_t first, std::uint32_t context)
    : world_(std::move(world)),
      group_(std::move(group)),
      block_(block),
      first_(first),
      next_sequence_(first),
      consumed_(first - 1),
      consumed_by_all_(first - 1),
      context_(context),
      channel_(routes_of(*world_, group_), group_.members[group_.index()].port,
               world_->counters()) {
  group_.channel = &channel_;
  group_.team = world_->options().team;
  group_.scratch = Scratch(&world_->arena());
  const std::string& table = world_->options().fabric.allreduce;
  if (!table.empty()) group_.allreduce_table = AlgorithmTable::parse(table);
  group_.counters = &world_->counters();
  const std::size_t threads = block_ == no_block ? 1 : threads_of(group_.team);
  group_.sources.resize(threads * group_.count());
  group_.destinations.resize(group_.count());
  // One rank without light fences is enough: then every step pays for a full fence.
  for (const Member& member : group_.members) {
    if (member.memory != nullptr && !member.memory->header().light_fences) light_fences_ = false;
  }
  world_->add(*this);
}

// Runs in the last thread that refers to it, whatever else that thread is doing.
CommunicatorCore::~CommunicatorCore() {
  const std::shared_ptr<WorldCore> world = world_;  // has the lock
  const std::lock_guard entry(world->lock());
  world_->remove(*this);
  pool_.clear();
  if (log_ != nullptr) world_->recorder().close_log(*log_);
  if (multi_node_) {
    if_memory_allows([this] {
      world_->note_last_collective({.context = context_,
                                    .members = multi_node_->members_hash(),
                                    .sequence = failure_ ? given_up_ - 1 : last_sequence()});
    });
  }
  // After a failure peers may still look into the block, and messages may still come to the port:
  // neither is ever used again.
  if (failure_) return;
  if (block_ != no_block) {
    if_memory_allows([this] {
      std::vector<const shm::ControlBlock*> blocks;
      for (const Member& member : group_.members) blocks.push_back(member.block);
      world_->retire({.block = block_, .last = last_sequence()}, std::move(blocks));
    });
  }
  if (owns_port_) world_->release_port(group_.members[group_.index()].port);
}

// Records are used again, the latest first, and a deque never moves them: when the pool is warm,
// posting allocates nothing.
OperationRecord& CommunicatorCore::take_record() {
  if (free_.empty()) {
    auto header = multi_node_ ? std::make_unique<HeaderExchange>() : nullptr;
    pool_.emplace_back().header = std::move(header);
    free_.reserve(pool_.size());
    return pool_.back();
  }
  OperationRecord& record = *free_.back();
  free_.pop_back();
  return record;
}

// A record is free when neither a Request nor the queue refers to it: either may be the last.
void CommunicatorCore::recycle(OperationRecord& record) noexcept {
  if (record.held || record.listed) return;
  record.storage.clear();
  record.operation = nullptr;
  if (record.coalesced) record.coalesced->forget();
  free_.push_back(&record);  // never allocates: take_record() reserved it
}

// Posting never waits: what cannot be published yet stays in the queue, and progress() publishes it
// later.
Request CommunicatorCore::post(OperationRecord& record) {
  record.held = true;
  if (failure_) return fail_at_once(record);
  // Not sooner: a Plan may be started before, while and after its memory is adopted.
  Posted& posted = record.posted;
  const ArenaCore& arena = world_->arena_core();
  posted.input.data = arena.resolve(posted.input.data, extent_of(posted.input));
  posted.output.data = arena.resolve(posted.output.data, extent_of(as_const_block(posted.output)));
  posted.sequence = next_sequence_++;
  record.stamp = {};
  record.stage = Stage::queued;
  record.forget_waits(round_of_checks_, world_->stalls().failures());
  record.needs_others = group_.count() > 1 && needs_all(posted.fingerprint.collective);
  record.brief = false;
  record.finishing = false;
  record.divided = 0;
  record.arrived = 0;
  record.listed = true;
  record.next = nullptr;
  (newest_ == nullptr ? oldest_ : newest_->next) = &record;
  newest_ = &record;
  if (current_ == nullptr) current_ = &record;
  if (unpublished_ == nullptr) unpublished_ = &record;
  publish_queued();
  ring_sleepers();
  record_ordered(record);  // while peers fetch what they have just been shown
  return {shared_from_this(), &record};
}

// After a failure everything that is posted has failed already.
Request CommunicatorCore::fail_at_once(OperationRecord& record) noexcept {
  record.stage = Stage::failed;
  record.listed = false;
  return {shared_from_this(), &record};
}

// A slot is free when all members have consumed the operation that it held, slot_count before. The
// cached value is read first: it is enough most of the time, and spares a look at every peer.
bool CommunicatorCore::publish_queued() {
  if (multi_node_) return post_queued_headers();
  bool moved = false;
  while (unpublished_ != nullptr) {
    const std::uint64_t sequence = unpublished_->posted.sequence;
    if (sequence > consumed_by_all_ + shm::slot_count &&
        sequence > consumed_by_all() + shm::slot_count) {
      break;
    }
    moved = true;
    if (unpublished_->coalesced && !unpublished_->coalesced->pack()) break;
    publish(*unpublished_);
    unpublished_ = unpublished_->next;
  }
  return moved;
}

// Whether a small payload travels in the slot is decided by its size alone, so that all ranks
// decide alike. For all else the slot says where the buffers lie, or that a copy is in the bulk
// payload.
void CommunicatorCore::publish(OperationRecord& record) {
  const Posted& posted = record.posted;
  shm::Slot& slot = slot_of(group_.mine(), posted.sequence);
  slot.fingerprint = posted.fingerprint;
  if (record.protocol == Protocol::small) {
    write_small_payload(group_, posted);
  } else {
    locate(slot.locator, posted, output_is_written(posted.fingerprint, group_.index()),
           world_->arena_core());
    record.any_private = out_of_reach(posted.fingerprint, slot.locator, group_.index());
    record.all_in_bulk =
        record.any_private && small_out_of_arenas(posted, group_, world_->options());
    if (record.all_in_bulk) {
      write_small_payload(group_, posted);
      slot.locator.offset = shm::bulk_memory;
    }
  }
  // Release: peers that find the sequence see the slot, the payload, and the input itself.
  slot.sequence.store(posted.sequence, std::memory_order_release);
  record.enter(Stage::published);
  group_.published = true;
}

// Goes on where the last call stopped: members before `arrived` have been seen and compared. This
// rank has seen itself when it published.
bool CommunicatorCore::all_have_posted(OperationRecord& record) {
  const Posted& posted = record.posted;
  for (; record.arrived < group_.count(); ++record.arrived) {
    if (record.arrived == group_.index()) continue;
    shm::Slot& slot = slot_of(*group_.members[record.arrived].block, posted.sequence);
    // Acquire: pairs with the release in publish().
    if (slot.sequence.load(std::memory_order_acquire) != posted.sequence) return false;
    compare(record, record.arrived);
    if (record.protocol != Protocol::small) {
      record.any_private =
          record.any_private || out_of_reach(posted.fingerprint, slot.locator, record.arrived);
      record.all_in_bulk = record.all_in_bulk && slot.locator.offset == shm::bulk_memory;
    }
  }
  return true;
}

// All members have seen the same slots, so all of them choose the same protocol.
void CommunicatorCore::start(OperationRecord& record) {
  if (record.protocol == Protocol::staged) {
    if (!record.any_private) record.protocol = Protocol::direct;
    if (record.all_in_bulk) record.protocol = Protocol::small;
  }
  start_algorithm(record, record.protocol);
  record.brief = is_brief(record.protocol, record.posted.fingerprint);
  if (record.brief) {
    record.enter_untimed(Stage::running);
  } else {
    record.enter(Stage::running);
  }
}

void CommunicatorCore::start_algorithm(OperationRecord& record, Protocol protocol) {
  const Algorithm& algorithm = choose(protocol, group_, record.posted);
  record.operation = &record.storage.start(algorithm, group_, record.posted);
}

// Starts the current operation when all have posted it, and does one step.
bool CommunicatorCore::step_current() {
  OperationRecord& record = *current_;
  if (record.stage == Stage::published) {
    if (multi_node_) {
      channel_.carry_with(*record.header);
      start_algorithm(record, Protocol::links);
      record.enter(Stage::running);
    } else {
      if (!all_have_posted(record)) return false;
      start(record);
    }
  }
  if (record.stage != Stage::running) return false;
  const Progress result = step(record);
  if (result != Progress::done) return result == Progress::moved;
  current_ = record.next;
  if (multi_node_) {
    group_.counters->operations += 1;
    record.enter(Stage::draining);
    return true;
  }
  // Release: all that this rank read and stored for the operation comes before the flag.
  consumed_ = record.posted.sequence;
  group_.mine().consumed.store(consumed_, std::memory_order_release);
  group_.published = true;
  group_.counters->operations += 1;  // not before the flag, which peers wait for
  if (record.protocol == Protocol::small && finish(record)) {
    record.end_untimed();
  } else {
    record.enter(Stage::draining);
  }
  return true;
}

// Brief operations are not timed: to read the clock twice would take a part of their time.
Progress CommunicatorCore::step(OperationRecord& record) {
  if (record.brief) return step_on_node(record);
  const auto begin = std::chrono::steady_clock::now();
  const Progress result = multi_node_ ? step_between_nodes(record) : step_on_node(record);
  if (result != Progress::idle) {
    group_.counters->communicating += std::chrono::steady_clock::now() - begin;
  }
  return result;
}

// Only in the direct protocol peers' buffers are touched. A peer that has failed has them back, so
// its failure is looked for after this rank has said that it is in a step; see RemoteAccess.
Progress CommunicatorCore::step_on_node(OperationRecord& record) {
  if (record.protocol != Protocol::direct) return record.operation->step(group_, record.posted);
  const shm::RemoteAccess access(group_.mine(), record.posted.sequence, light_fences_);
  throw_failure_of_peers();
  return record.operation->step(group_, record.posted);
}

// The last operation that no member reads or writes any more.
std::uint64_t CommunicatorCore::consumed_by_all() noexcept {
  std::uint64_t least = consumed_;
  for (std::size_t r = 0; r < group_.count(); ++r) {
    if (r == group_.index()) continue;
    // Acquire: a peer's stores into this rank's buffers come before its flag.
    least = std::min(least, group_.members[r].block->consumed.load(std::memory_order_acquire));
  }
  consumed_by_all_ = least;
  return least;
}

// Operations drain in order: the first one that some member has not consumed ends the search.
bool CommunicatorCore::drain() {
  if (multi_node_) return drain_headers();
  bool moved = false;
  for (OperationRecord* record = oldest_; record != current_; record = record->next) {
    if (record->stage != Stage::draining) continue;
    if (record->posted.sequence > consumed_by_all_ && record->posted.sequence > consumed_by_all()) {
      break;
    }
    moved = true;
    if (!finish(*record)) break;
    record->enter(Stage::complete);
  }
  unlist_complete();
  return moved;
}

// As far as it can be, in one call.
void CommunicatorCore::drain_all() {
  if (block_ != no_block) {
    while (drain()) {
    }
  } else if (oldest_ != nullptr && oldest_->finishing) {
    while (!finish(*oldest_)) {
    }
    oldest_->enter(Stage::complete);
    unlist_complete();
  }
}

// Does a tile of the work that is left when all ranks have done their parts; true when none is.
bool CommunicatorCore::finish(OperationRecord& record) const {
  record.finishing = true;
  if (multi_node_ && !divide_average(record)) return false;
  return !record.coalesced || record.coalesced->unpack();
}

// Takes complete operations off the head of the list; one in the middle stays until it is the head.
void CommunicatorCore::unlist_complete() {
  while (oldest_ != nullptr && oldest_ != current_ && oldest_->stage == Stage::complete) {
    OperationRecord& record = *oldest_;
    oldest_ = record.next;
    if (oldest_ == nullptr) newest_ = nullptr;
    record.listed = false;
    recycle(record);
  }
}

// Nothing thrown here reaches the caller, who may be waiting on another communicator: a failure
// becomes this communicator's own, and its requests report it.
bool CommunicatorCore::progress() {
  if ((oldest_ == nullptr && parts_.empty()) || failure_) return false;
  try {
    if (deferred_failure_) {
      check_deferred_failure();
      return false;
    }
    bool moved = !parts_.empty() && step_parts();
    if (deferred_failure_) return moved;
    moved = (unpublished_ != nullptr && publish_queued()) || moved;
    if (current_ != nullptr) moved = step_current() || moved;
    if (oldest_ != current_) moved = drain() || moved;
    ring_sleepers();
    moves_ += moved ? 1U : 0U;
    return moved;
  } catch (const LinkFailure& failure) {
    defer_failure(failure, current_);
    return false;
  } catch (const Error& error) {
    fail(error);
    return true;
  } catch (const std::bad_alloc&) {
    fail(world_->lacks_memory());
    return true;
  }
}

// Every message is looked at: they end in any order.
bool CommunicatorCore::step_parts() {
  bool moved = false;
  for (OperationRecord* record : parts_) {
    try {
      if (record->operation->step(group_, record->posted) != Progress::done) continue;
    } catch (const LinkFailure& failure) {
      defer_failure(failure, record);
      return false;
    }
    record->enter(Stage::complete);
    moved = true;
  }
  if (!moved) return false;
  std::erase_if(parts_, [this](OperationRecord* record) {
    if (record->stage != Stage::complete) return false;
    group_.counters->operations += 1;
    record->listed = false;
    recycle(*record);
    return true;
  });
  return true;
}

// Once for all flags that a pass has stored, because the fence and the looks at peers cost more
// than the flags.
void CommunicatorCore::ring_sleepers() {
  if (!group_.published) return;
  group_.published = false;
  if (!world_->may_sleep()) return;
  shm::fence_before_ringing();
  for (const Member& member : group_.members) shm::ring_if_asleep(member.memory->header());
}

// While an operation waits for a rank, those that are there may differ already: that explains more
// than a lost peer or a deadline does.
void CommunicatorCore::check_all_fingerprints() {
  if (multi_node_) return compare_all_headers();
  if (current_ == nullptr || current_->stage != Stage::published) return;
  const std::uint64_t sequence = current_->posted.sequence;
  for (std::size_t r = 0; r < group_.count(); ++r) {
    // Acquire: pairs with the release in publish().
    if (slot_of(*group_.members[r].block, sequence).sequence.load(std::memory_order_acquire) ==
        sequence) {
      compare(*current_, r);
    }
  }
}

// Throws when `member` has posted something else under the same sequence. Where a rank is lost,
// that is why: a rank that has seen it and goes on posts what the others do not expect.
void CommunicatorCore::compare(const OperationRecord& record, std::size_t member) const {
  const std::uint64_t sequence = record.posted.sequence;
  compare(record, member, slot_of(*group_.members[member].block, sequence).fingerprint, sequence);
}

void CommunicatorCore::compare(const OperationRecord& record, std::size_t member,
                               const shm::Fingerprint& theirs, std::uint64_t sequence) const {
  if (theirs == record.posted.fingerprint) return;
  const int peer = group_.members[member].world_rank;
  if (const std::optional<int> lost = cause_of_mismatch(peer)) throw loss_of(*lost, record);
  const std::string mine = describe(record);
  throw Error(Errc::mismatch,
              "ranks posted different operations: rank " + std::to_string(world_->rank()) + " " +
                  mine + ", rank " + std::to_string(peer) + " " + describe(theirs, sequence) +
                  "; all ranks must post the same collectives in the same order",
              world_->detail_of(peer, mine));
}

// Each stage waits for another mark of a peer: a consumed slot, a published one, progress in the
// algorithm, the consumed operation itself.
bool CommunicatorCore::waits_for(const OperationRecord& record, std::size_t member) const {
  if (member == group_.index() || record.finished()) return false;
  if (!record.ordered) return record.operation->waits_for(group_, member);
  if (multi_node_) {
    const auto waits = [&](const OperationRecord* part) {
      return part != nullptr && part->posted.sequence <= record.posted.sequence &&
             multi_node_->waits_for(*part, group_, member);
    };
    return waits(oldest_) || waits(current_);
  }
  const OperationRecord& front = front_of(record);
  const std::uint64_t sequence = front.posted.sequence;
  shm::ControlBlock& block = *group_.members[member].block;
  switch (front.stage) {
    case Stage::queued:
      return block.consumed.load(std::memory_order_acquire) + shm::slot_count < sequence;
    case Stage::published:
      return slot_of(block, sequence).sequence.load(std::memory_order_acquire) != sequence;
    case Stage::running:
      return front.operation->waits_for(group_, member);
    case Stage::draining:
      return block.consumed.load(std::memory_order_acquire) < sequence;
    case Stage::complete:
    case Stage::failed:
      return false;
  }
  return false;
}

bool CommunicatorCore::awaits(int world_rank) const {
  if (oldest_ == nullptr) return false;
  const auto found = std::ranges::find(group_.members, world_rank, &Member::world_rank);
  if (found == group_.members.end()) return false;
  const auto member = static_cast<std::size_t>(found - group_.members.begin());
  return waits_for(*oldest_, member) || waits_for(*newest_, member);
}

// A rank that waits for an operation may in truth wait for an older one: reports name that one.
const OperationRecord& CommunicatorCore::front_of(const OperationRecord& record) const {
  if (!record.ordered || record.finished()) return record;
  if (multi_node_) return *oldest_;
  // Operations run in order: what is waited for may be queued behind another.
  const bool behind = current_ != nullptr && record.stage != Stage::draining &&
                      current_->posted.sequence <= record.posted.sequence;
  return behind ? *current_ : record;
}

bool CommunicatorCore::needs(const OperationRecord& record, std::size_t member) const {
  if (multi_node_ && record.ordered) return member != group_.index() && !record.finished();
  return waits_for(record, member);
}

// Inside a node the slots tell whether a rank took part, so this is only asked between nodes.
bool CommunicatorCore::took_part(const OperationRecord& record, std::size_t member) const {
  if (!multi_node_ || !record.ordered) return false;
  const int rank = group_.members[member].world_rank;
  const auto last =
      world_->peer_status().last_collective(rank, context_, multi_node_->members_hash());
  return !last || front_of(record).posted.sequence <= *last;
}

std::vector<int> CommunicatorCore::missing(const OperationRecord& record) const {
  std::vector<int> ranks;
  for (std::size_t r = 0; r < group_.count(); ++r) {
    if (waits_for(record, r)) ranks.push_back(group_.members[r].world_rank);
  }
  // Between nodes there may be moments in which nothing is posted to anybody.
  if (!ranks.empty() || !multi_node_ || !record.ordered || record.finished()) return ranks;
  for (const Member& member : group_.members) {
    if (member.world_rank != world_->rank()) ranks.push_back(member.world_rank);
  }
  return ranks;
}

}  // namespace rondo::transport
