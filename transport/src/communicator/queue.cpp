// The queue of a communicator: from a posted record to a complete operation.
//
// A record is published, runs when all members have posted it, one step per call of progress(), and
// drains until all have done their parts. How the members tell each other is a matter of SlotStage
// inside a node, and of HeaderStage between nodes.

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
#include "memory/arena.hpp"
#include "memory/control_block.hpp"
#include "memory/memory.hpp"
#include "message/channel.hpp"
#include "recorder/names.hpp"
#include "world/world_core.hpp"

namespace rondo::transport {
namespace {

// The most messages that a pass looks at once one of them is done.
constexpr std::size_t parts_of_a_pass = 256;

constexpr std::size_t records_kept = 4096;

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

// A direct operation of so many bytes, of all ranks together, takes about a microsecond.
constexpr std::size_t most_brief_bytes = std::size_t{16} << 10U;

bool is_brief(const SlotOperation& operation) {
  const shm::Fingerprint& fingerprint = operation.posted.fingerprint;
  return operation.protocol == Protocol::small ||
         (operation.protocol == Protocol::direct &&
          fingerprint.count * size_of(fingerprint.type) <= most_brief_bytes);
}

}  // namespace

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

CommunicatorCore::CommunicatorCore(std::shared_ptr<WorldCore> world, Group group,
                                   std::uint64_t block, std::uint64_t first, std::uint32_t context)
    : world_(std::move(world)),
      group_(std::move(group)),
      block_(block),
      first_(first),
      next_sequence_(first),
      slots_(*this, group_, first),
      context_(context),
      channel_(routes_of(*world_, group_), group_.members[group_.index()].port,
               world_->counters()) {
  group_.equip(world_->options().team, world_->counters(), channel_, world_->arena());
  const std::string& table = world_->options().fabric.allreduce;
  if (!table.empty()) group_.allreduce_table = AlgorithmTable::parse(table);
  world_->add(*this);
}

// Runs in the last thread that refers to it, whatever else that thread is doing.
CommunicatorCore::~CommunicatorCore() {
  const std::shared_ptr<WorldCore> world = world_;  // has the lock
  const std::lock_guard entry(world->lock());
  world_->remove(*this);
  pool_.clear();
  if (log_ != nullptr) world_->recorder().close_log(*log_);
  if (headers_) {
    if_memory_allows([this] {
      world_->note_last_collective({.context = context_,
                                    .members = headers_->members_hash(),
                                    .sequence = (failure_ ? given_up_ : next_sequence_) - 1});
    });
  }
  // After a failure peers may still look into the block, and messages may still come to the port:
  // neither is ever used again.
  if (failure_) return;
  if_memory_allows([this] {
    std::vector<const shm::ControlBlock*> blocks;
    for (const Member& member : group_.members) {
      if (member.block != nullptr) blocks.push_back(member.block);
    }
    const std::uint64_t last = headers_ ? headers_->last_on_node() : next_sequence_ - 1;
    world_->retire({.block = block_, .last = last}, std::move(blocks));
  });
  world_->release_port(group_.members[group_.index()].port);
}

// Records are used again, the latest first, and a deque never moves them: when the pool is warm,
// posting allocates nothing. A record has up to 17 KiB: what a flood of operations has left beyond
// `records_kept` is freed once all are done.
OperationRecord& CommunicatorCore::take_record() {
  if (pool_.size() > records_kept && free_.size() == pool_.size()) {
    while (pool_.size() > records_kept) pool_.pop_back();
    free_.clear();
    for (OperationRecord& record : pool_) free_.push_back(&record);
  }
  if (free_.empty()) {
    auto header = headers_ ? std::make_unique<HeaderExchange>() : nullptr;
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
  record.protocol = protocol_of(group_, posted, world_->options().small_bytes);
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
  ring_sleepers(group_);
  record_ordered(record);  // while peers fetch what they have just been shown
  return {shared_from_this(), &record};
}

// After a failure everything that is posted has failed already.
Request CommunicatorCore::fail_at_once(OperationRecord& record) noexcept {
  record.stage = Stage::failed;
  record.listed = false;
  return {shared_from_this(), &record};
}

bool CommunicatorCore::publish_queued() {
  bool moved = false;
  while (unpublished_ != nullptr &&
         at_stage([this](auto& stage) { return stage.may_publish(*unpublished_); })) {
    moved = true;
    if (unpublished_->coalesced && !unpublished_->coalesced->pack()) break;
    at_stage([this](auto& stage) { stage.publish(*unpublished_); });
    unpublished_->enter(Stage::published);
    unpublished_ = unpublished_->next;
  }
  return moved;
}

// Starts the current operation when all have posted it, and does one step.
bool CommunicatorCore::step_current() {
  OperationRecord& record = *current_;
  if (record.stage == Stage::published) {
    if (!at_stage([&](auto& stage) { return stage.all_have_posted(record); })) return false;
    at_stage([&](auto& stage) { stage.start(record, record.storage); });
    record.brief = !headers_ && is_brief(record);
    if (record.brief) {
      record.enter_untimed(Stage::running);
    } else {
      record.enter(Stage::running);
    }
  }
  if (record.stage != Stage::running) return false;
  const Progress result = step(record);
  if (result != Progress::done) return result == Progress::moved;
  current_ = record.next;
  at_stage([&](auto& stage) { stage.end_own_part(record); });
  group_.counters->operations += 1;  // not before peers can see the end, which they wait for
  if (!headers_ && record.protocol == Protocol::small && finish(record)) {
    record.end_untimed();
  } else {
    record.enter(Stage::draining);
  }
  return true;
}

// Brief operations are not timed: to read the clock twice would take a part of their time.
Progress CommunicatorCore::step(OperationRecord& record) {
  if (record.brief) return slots_.step(record);
  const auto begin = std::chrono::steady_clock::now();
  const Progress result = at_stage([&](auto& stage) { return stage.step(record); });
  if (result != Progress::idle) {
    group_.counters->communicating += std::chrono::steady_clock::now() - begin;
  }
  return result;
}

// Operations drain in order: the first one that some member has not ended ends the search.
bool CommunicatorCore::drain() {
  bool moved = false;
  for (OperationRecord* record = oldest_; record != current_; record = record->next) {
    if (record->stage != Stage::draining) continue;
    if (!at_stage([&](auto& stage) { return stage.all_have_ended(*record); })) break;
    moved = true;
    if (!finish(*record)) break;
    record->enter(Stage::complete);
  }
  unlist_complete();
  return moved;
}

// As far as it can be, in one call.
void CommunicatorCore::drain_all() {
  if (!headers_) {
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
  if (!at_stage([&](auto& stage) { return stage.finish(record); })) return false;
  return !record.coalesced || record.coalesced->unpack();
}

// A mismatch may have been told before this rank had made the communicator.
void CommunicatorCore::span_nodes(std::uint64_t first_on_node) {
  headers_ = std::make_unique<HeaderStage>(*this, first_on_node);
  for (const StatusMessage& status : world_->divergences()) handle_divergence(status);
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
    ring_sleepers(group_);
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

// Messages end in any order, but those that end one after the other have often been posted so: a
// pass goes on where the last one has found something, and looks at all only while it finds
// nothing.
bool CommunicatorCore::step_parts() {
  bool moved = false;
  const std::size_t all = parts_.size();
  std::size_t at = std::min(next_part_, all);
  for (std::size_t looked_at = 0; looked_at < all; ++looked_at, ++at) {
    if (moved && looked_at >= parts_of_a_pass) break;
    if (at == all) at = 0;
    OperationRecord* const record = parts_[at];
    try {
      if (record->operation->step(group_, record->posted) != Progress::done) continue;
    } catch (const LinkFailure& failure) {
      defer_failure(failure, record);
      break;
    }
    record->enter(Stage::complete);
    group_.counters->operations += 1;
    record->listed = false;
    recycle(*record);
    parts_[at] = nullptr;
    moved = true;
  }
  if (!moved) return false;
  const auto next = parts_.begin() + static_cast<std::ptrdiff_t>(at);
  next_part_ = at - static_cast<std::size_t>(std::count(parts_.begin(), next, nullptr));
  std::erase(parts_, nullptr);
  return true;
}

// Once for all flags that a pass has stored, because the fence and the looks at peers cost more
// than the flags.
void CommunicatorCore::ring_sleepers(Group& group) const {
  if (!group.published) return;
  group.published = false;
  if (!world_->may_sleep()) return;
  shm::fence_before_ringing();
  for (const Member& member : group.members) shm::ring_if_asleep(member.memory->header());
}

// While an operation waits for a rank, those that are there may differ already: that explains more
// than a lost peer or a deadline does.
void CommunicatorCore::check_all_fingerprints() {
  at_stage([](auto& stage) { stage.compare_all(); });
}

// Throws when `member` has posted something else under the same sequence. Where a rank is lost,
// that is why: a rank that has seen it and goes on posts what the others do not expect.
void CommunicatorCore::compare(const OperationRecord& record, int peer,
                               const shm::Fingerprint& theirs, std::uint64_t sequence) const {
  if (theirs == record.posted.fingerprint) return;
  if (const std::optional<int> lost = cause_of_mismatch(peer)) throw loss_of(*lost, record);
  const std::string mine = describe(record);
  throw Error(Errc::mismatch,
              "ranks posted different operations: rank " + std::to_string(world_->rank()) + " " +
                  mine + ", rank " + std::to_string(peer) + " " + describe(theirs, sequence) +
                  "; all ranks must post the same collectives in the same order",
              world_->detail_of(peer, mine));
}

bool CommunicatorCore::waits_for(const OperationRecord& record, std::size_t member) const {
  if (member == group_.index() || record.finished()) return false;
  if (!record.ordered) return record.operation->waits_for(group_, member);
  return at_stage([&](const auto& stage) { return stage.waits_for(record, member); });
}

// A rank that waits for an operation may in truth wait for an older one: reports name that one.
const OperationRecord& CommunicatorCore::front_of(const OperationRecord& record) const {
  if (!record.ordered || record.finished()) return record;
  return at_stage(
      [&](const auto& stage) -> const OperationRecord& { return stage.front_of(record); });
}

bool CommunicatorCore::needs(const OperationRecord& record, std::size_t member) const {
  if (headers_ && record.ordered) return member != group_.index() && !record.finished();
  return waits_for(record, member);
}

// Inside a node the slots tell whether a rank took part, so this is only asked between nodes.
bool CommunicatorCore::took_part(const OperationRecord& record, std::size_t member) const {
  if (!headers_ || !record.ordered) return false;
  const int rank = group_.members[member].world_rank;
  const auto last = world_->peer_status().last_collective(rank, context_, headers_->members_hash());
  return !last || front_of(record).posted.sequence <= *last;
}

std::vector<int> CommunicatorCore::missing(const OperationRecord& record) const {
  std::vector<int> ranks;
  for (std::size_t r = 0; r < group_.count(); ++r) {
    if (waits_for(record, r)) ranks.push_back(group_.members[r].world_rank);
  }
  // Between nodes there may be moments in which nothing is posted to anybody.
  if (!ranks.empty() || !headers_ || !record.ordered || record.finished()) return ranks;
  for (const Member& member : group_.members) {
    if (member.world_rank != world_->rank()) ranks.push_back(member.world_rank);
  }
  return ranks;
}

}  // namespace rondo::transport
