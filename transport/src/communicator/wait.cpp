// How a rank waits for an operation. A wait first spins, then yields, then sleeps on the rank's
// doorbell, and makes progress of all communicators each time it is awake. Every few milliseconds
// it checks what would end it: an abort, a peer that has failed or ended, the deadline.
// Request::test() makes the same checks without waiting.

#include "communicator/wait.hpp"

#include <poll.h>
#include <sched.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/pause_cpu.hpp"
#include "base/world_lock.hpp"
#include "communicator/communicator_core.hpp"
#include "memory/control_block.hpp"
#include "recorder/names.hpp"
#include "world/world_core.hpp"

namespace rondo::transport {
namespace {

using namespace std::chrono_literals;

// A peer that computes alike arrives within microseconds; one that does not is waited for without
// keeping a core busy.
constexpr auto spin_time = 40us;
constexpr auto yield_time = 200us;
// How long a wait sleeps at once.
constexpr auto sleep_slice = 50ms;
constexpr auto fabric_slice = 10ms;
constexpr auto unarmed_slice = 100us;
// A wait that has not looked at the clock for so long did not run: its job was suspended, by Ctrl-Z
// or by Slurm, or is examined by a debugger.
constexpr auto longest_pause = 1s;
// Messages that a rank of another node sent before it ended may still be on their way. They are
// given up when nothing has arrived for so long: after the rank was lost, and, if it may have sent
// one, after it left in order.
constexpr std::chrono::nanoseconds grace_of_lost = 200ms;
constexpr std::chrono::nanoseconds grace_of_left = 2s;
// Messages that keep arriving may be for other communicators, of this thread or of another. They
// put off the end of a wait for so long at most, unless its own communicator moves, too.
constexpr std::chrono::nanoseconds longest_postponement = 2s;
constexpr int pauses_per_check = 16;

}  // namespace

Wait::Wait(std::span<const Awaited> all, const CommunicatorCore::WaitLimit& limit)
    : all_(all),
      communicator_(all.front().communicator),
      record_(all.front().record),
      world_(communicator_->world()),
      given_(limit),
      limit_(limit.limit.value_or(world_.options().deadline)),
      moves_seen_(world_.moves()),
      begin_(Clock::now()),
      idle_since_(begin_),
      now_(begin_),
      checked_at_(begin_),
      work_before_(world_.counters().communicating) {
  for (const Awaited& awaited : all_) {
    if (!awaited.record->wanted_since) awaited.record->wanted_since = begin_;
  }
}

void Wait::look_at(const Awaited& awaited) noexcept {
  communicator_ = awaited.communicator;
  record_ = awaited.record;
}

// Time in which this rank did not run counts neither for its deadline nor for what is lost: its
// peers may not have run, either.
void Wait::look_at_clock() noexcept {
  const Clock::time_point now = Clock::now();
  const auto pause = now - now_;
  now_ = now;
  if (pause < longest_pause) return;
  begin_ += pause;
  for (const Awaited& awaited : all_) awaited.record->loss.reset();
}

bool Wait::any_finished() const noexcept {
  return std::ranges::any_of(all_,
                             [](const Awaited& awaited) { return awaited.record->finished(); });
}

// A lost rank is given up only when nothing arrives any more.
void Wait::put_off_losses() noexcept {
  for (const Awaited& awaited : all_) {
    if (awaited.record->loss) awaited.record->loss->quiet_since = now_;
  }
}

// While something moves, the wait stays awake; only idle time lets it yield and sleep. It may have
// been another thread that moved it.
bool Wait::run() {
  while (!limit_passed_) {
    world_.progress();
    const bool moved = world_.moves() != moves_seen_;
    moves_seen_ = world_.moves();
    note_arrival();
    if (any_finished()) break;
    if (moved) {
      look_at_clock();
      idle_since_ = now_;
      put_off_losses();
      // Something may always move that is not what is waited for.
      if (now_ - checked_at_ >= check_interval) check();
      const WorldLock::Opening others(world_.lock());
      continue;
    }
    rest();
  }
  // A caller that waits for a while again and again still waits.
  if (!limit_passed_) {
    for (const Awaited& awaited : all_) world_.stalls().end(*awaited.record);
  }
  account();
  return any_finished();
}

// First who has ended, then why. A rank stores its abort or its failure before it marks itself as
// left, and whoever loads that mark (acquire) sees the reason, too. In the other order a peer that
// fails and leaves between the two looks would be taken for one that left in order, and the wrong
// rank be named.
void Wait::check_peers() {
  const std::optional<Loss> loss = find_loss();
  check_aborts();
  check_failed_peers();
  if (loss) check_loss(*loss);
  check_unobserved();
}

// One pause: a few processor pauses, a yield, or a sleep, by how long nothing has moved. Ranks that
// outnumber their CPUs do not spin: whoever they wait for needs the CPU.
void Wait::rest() {
  look_at_clock();
  const auto idle = now_ - idle_since_;
  const Waiting waiting = world_.options().waiting;
  const auto spin = world_.oversubscribed() ? 0us : spin_time;
  const bool sleepy =
      waiting == Waiting::block || (waiting == Waiting::automatic && idle >= spin + yield_time);
  // Always before a long sleep: a peer that has ended does not ring.
  if ((sleepy && !sleeps_briefly()) || now_ - checked_at_ >= check_interval ||
      now_ - begin_ >= limit_)
    check();
  if (any_finished() || limit_passed_) return;
  if (sleepy) return sleep();
  const WorldLock::Opening others(world_.lock());
  if (waiting == Waiting::spin || (waiting == Waiting::automatic && idle < spin)) {
    for (int i = 0; i < pauses_per_check; ++i) pause_cpu();
  } else {
    ::sched_yield();
  }
}

// Where the doorbell is slept on and the fabric looked at soon.
bool Wait::sleeps_briefly() const {
  return world_.fabric() != nullptr && !world_.watches_fabric() && world_.shares_its_node();
}

// The mark comes before everything is read once more: whoever publishes after that read sees it and
// rings. The doorbell is read first, so no ring is missed, nor one of this rank's other threads,
// which are let in for as long as this one sleeps.
void Wait::sleep() {
  const WorldCore::Sleeper asleep(world_);
  const std::uint32_t bell = world_.header().doorbell.load(std::memory_order_acquire);
  if (world_.progress() || any_finished() || world_.aborted()) return;
  const auto left = std::max<std::chrono::nanoseconds>(limit_ - (now_ - begin_), unarmed_slice);
  const auto slice = std::min<std::chrono::nanoseconds>(sleep_slice, left);
  if (world_.fabric() == nullptr || world_.watches_fabric()) {
    sleep_on_doorbell(bell, slice);
  } else {
    sleep_on_fabric(bell, std::min<std::chrono::nanoseconds>(fabric_slice, slice));
  }
}

void Wait::sleep_on_doorbell(std::uint32_t bell, std::chrono::nanoseconds slice) {
  const WorldLock::Opening others(world_.lock());
  shm::futex_wait(world_.header().doorbell, bell, slice);
}

// Peers of the node ring the doorbell, those of others the fabric's descriptor. Where there are
// both, the doorbell is slept on and the fabric looked at soon.
void Wait::sleep_on_fabric(std::uint32_t bell, std::chrono::nanoseconds slice) {
  std::optional<int> descriptor;
  if (!world_.shares_its_node()) descriptor = world_.fabric()->arm();
  if (!descriptor) return sleep_on_doorbell(bell, unarmed_slice);
  const WorldCore::FabricWatch watch(world_);
  // Other threads of this rank ring by a descriptor, too: its poll() knows nothing of the doorbell.
  std::array<pollfd, 2> entries{pollfd{.fd = *descriptor, .events = POLLIN, .revents = 0},
                                pollfd{.fd = watch.rings(), .events = POLLIN, .revents = 0}};
  const timespec timeout{.tv_sec = 0, .tv_nsec = slice.count()};
  const WorldLock::Opening others(world_.lock());
  ::ppoll(entries.data(), entries.size(), &timeout, nullptr);
}

// A finished operation is never late.
void Wait::check() {
  checked_at_ = now_;
  for (const Awaited& awaited : all_) {
    look_at(awaited);
    check_peers();
    if (any_finished()) return;
  }
  look_at(all_.front());
  check_deadline();
}

void Wait::check_aborts() {
  if (auto error = world_.aborted()) throw Error(*error);
}

// A peer of this node that has given up the communicator says why. Its earlier work may be all that
// is waited for.
void Wait::check_failed_peers() {
  if (record_->finished() || !communicator_->failure_of_peers(*record_)) return;
  const std::uint64_t moves = communicator_->moves();
  const bool drained = drain_arrivals();
  if (record_->finished() || (!drained && communicator_->moves() != moves)) return;
  if (const auto failure = communicator_->failure_of_peers(*record_)) throw Error(*failure);
}

// A rank that has ended is an error only when what it sent before has been read, and it still is
// needed, and nothing has arrived for as long as its last messages may take.
void Wait::check_loss(const Loss& loss) {
  if (record_->finished()) return;
  const bool drained = drain_arrivals();
  if (record_->finished() || !is_loss(loss.member)) return;
  if (is_put_off_too_long(loss.member) || (drained && is_quiet_for(loss.grace))) {
    throw loss_error(loss);
  }
}

Error Wait::loss_error(const Loss& loss) const {
  return communicator_->loss_of(communicator_->group().members[loss.member].world_rank, *record_);
}

// Has nothing arrived for so long, since a rank is known to have ended?
bool Wait::is_quiet_for(std::chrono::nanoseconds grace) {
  if (!record_->loss) record_->loss.emplace();
  std::optional<Clock::time_point>& since = record_->loss->quiet_since;
  if (!since) since = now_;
  return now_ - *since >= grace;
}

// Has nothing of the communicator moved for long, since that member is known to have ended?
bool Wait::is_put_off_too_long(std::size_t member) {
  if (!record_->loss) record_->loss.emplace();
  KnownLoss& known = *record_->loss;
  const std::uint64_t moves = communicator_->moves();
  if (!known.since || known.member != member || known.moves != moves) {
    known.since = now_;
    known.member = member;
    known.moves = moves;
  }
  return now_ - *known.since >= longest_postponement;
}

// A rank was lost, and rank 0 has ended, by this loss or because of it. From now on nobody tells
// whether ranks of other nodes go on, give up or are lost, too. So a wait for one of them, in a
// communicator that the lost rank need not be in, ends when nothing arrives any more.
void Wait::check_unobserved() {
  if (record_->finished() || !find_unobserved()) return;
  const bool drained = drain_arrivals();
  if (record_->finished()) return;
  const std::optional<int> lost = find_unobserved();
  if (lost && drained && is_quiet_for(grace_of_left)) {
    throw communicator_->unobserved_after(*lost, *record_);
  }
}

// The rank that was lost, if that is so.
std::optional<int> Wait::find_unobserved() const {
  if (!world_.store_has_ended() || !needs_unobserved()) return std::nullopt;
  return world_.first_lost();
}

bool Wait::needs_unobserved() const {
  const std::vector<Member>& members = communicator_->group().members;
  for (std::size_t r = 0; r < members.size(); ++r) {
    const int rank = members[r].world_rank;
    if (!world_.same_node(rank) && communicator_->needs(*record_, r)) return true;
  }
  return false;
}

// Reads once more what a peer may have stored before it ended; a mismatch explains more. Not for
// long, because others may send for ever what is for other communicators: false when something
// still moves.
bool Wait::drain_arrivals() {
  communicator_->check_all_fingerprints();
  const Clock::time_point until = now_ + check_interval;
  while (!record_->finished() && world_.progress()) {
    look_at_clock();
    idle_since_ = now_;
    put_off_losses();
    if (now_ >= until) return false;
  }
  return true;
}

// The first of several that have ended explains the others; a lost one explains those that left.
std::optional<Wait::Loss> Wait::find_loss() const {
  const std::vector<Member>& members = communicator_->group().members;
  std::optional<Loss> loss;
  std::pair<bool, std::uint32_t> least;
  for (std::size_t r = 0; r < members.size(); ++r) {
    if (!is_loss(r)) continue;
    const int rank = members[r].world_rank;
    const std::pair order(world_.has_left(rank),
                          world_.peer_status().departure(rank) - 1);  // unknown comes last
    const auto shortest = loss ? std::min(grace(r), loss->grace) : grace(r);
    if (!loss || order < least) {
      loss = {.member = r, .grace = shortest};
      least = order;
    }
    loss->grace = shortest;
  }
  return loss;
}

// A rank that has left in order after its part is not needed, however long the others take.
bool Wait::is_loss(std::size_t member) const {
  const int rank = communicator_->group().members[member].world_rank;
  return communicator_->needs(*record_, member) && world_.has_ended(rank) &&
         !(world_.has_left(rank) && communicator_->took_part(*record_, member));
}

// How long messages of a member that has ended may still arrive. In shared memory all is there.
std::chrono::nanoseconds Wait::grace(std::size_t member) const {
  const int rank = communicator_->group().members[member].world_rank;
  if (!communicator_->spans_nodes() && world_.same_node(rank)) return 0ns;
  if (communicator_->has_deferred_failure()) return 0ns;  // nothing more will come
  if (!world_.has_left(rank)) return grace_of_lost;
  return record_->ordered ? 0ns : grace_of_left;  // its last collective is known
}

// A limit of the caller's own ends the wait without an error.
void Wait::check_deadline() {
  const auto waited = now_ - begin_;
  const bool reports = !stall_reported_ && waited >= world_.options().stall_warning;
  tell_if_late();
  if (!reports && waited < limit_) return;
  const std::vector<int> missing = communicator_->missing(*record_);
  if (reports) report_stall(missing);
  if (waited < limit_) return;
  if (given_.limit) {
    limit_passed_ = true;
    return;
  }
  if (given_.has_moved != nullptr && (*given_.has_moved)()) {
    limit_ = waited + world_.options().deadline;
    stall_reported_ = false;
    fault_search_ = {};
    return;
  }
  // A message has failed already, and nobody has told why.
  if (communicator_->has_deferred_failure()) throw Error(communicator_->deferred_failure());
  throw_if_lost();
  throw_if_held_back(missing);
  const std::optional<Fault> fault = world_.stalls().find_fault(missing, fault_search_);
  if (fault) throw_deadline(missing, *fault);
}

// A rank that is known to be gone is not called alive, however much has arrived of late.
void Wait::throw_if_lost() const {
  if (const std::optional<Loss> loss = find_loss()) throw loss_error(*loss);
  if (const std::optional<int> lost = find_unobserved()) {
    throw communicator_->unobserved_after(*lost, *record_);
  }
}

void Wait::tell_if_late() {
  if (now_ - *record_->wanted_since < world_.options().deadline / 2) return;
  Stalls& stalls = world_.stalls();
  if (stalls.may_tell(*record_, now_)) {
    stalls.tell(*record_, communicator_->missing(*record_), now_);
  }
}

// The observer is called once a wait, or once in each of its deadlines.
void Wait::report_stall(const std::vector<int>& missing) {
  if (!world_.options().on_stall) return;
  stall_reported_ = true;
  const auto waited = std::chrono::duration_cast<std::chrono::milliseconds>(now_ - begin_);
  world_.options().on_stall({.rank = world_.rank(),
                             .operation = communicator_->describe(*record_),
                             .missing = missing,
                             .duration = waited});
}

std::string Wait::what_waited() const {
  const auto waited = std::chrono::duration_cast<std::chrono::milliseconds>(now_ - begin_);
  return communicator_->describe(*record_) + " on rank " + std::to_string(world_.rank()) +
         " waited " + std::to_string(waited.count()) + " ms, its deadline, for ";
}

// It may have sent what is awaited, behind messages that this rank cannot keep.
void Wait::throw_if_held_back(const std::vector<int>& missing) const {
  for (const int rank : missing) {
    const Link* const link = world_.link_to(rank);
    const std::string why = link == nullptr ? "" : link->held_back(rank);
    if (why.empty()) continue;
    throw Error(Errc::deadline_exceeded, what_waited() + name_rank(world_, rank) + ": " + why,
                world_.detail_of(rank, communicator_->describe(*record_)));
  }
}

void Wait::throw_deadline(const std::vector<int>& missing, const Fault& fault) const {
  std::string names;
  for (const int rank : missing) names += (names.empty() ? "" : ", ") + name_rank(world_, rank);
  throw Error(Errc::deadline_exceeded,
              what_waited() + (names.empty() ? "its peers" : names) + fault.clause +
                  ", alive but not taking part; stopped, or much slower than a deadline allows?",
              world_.detail_of(fault.rank, communicator_->describe(*record_)));
}

// Until the operation runs, some rank has not posted it: that time is waiting. Later time is
// communication.
void Wait::note_arrival() {
  if (arrived_ || record_->stage == Stage::queued || record_->stage == Stage::published) return;
  arrived_ = true;
  const auto work = world_.counters().communicating - work_before_;
  waited_ = std::max<std::chrono::nanoseconds>(Clock::now() - begin_ - work, 0ns);
}

void Wait::account() {
  Counters& counters = world_.counters();
  const auto total = std::chrono::nanoseconds(Clock::now() - begin_);
  const auto work = counters.communicating - work_before_;
  if (!arrived_) waited_ = std::max<std::chrono::nanoseconds>(total - work, 0ns);
  counters.waiting += waited_;
  counters.communicating += std::max<std::chrono::nanoseconds>(total - work - waited_, 0ns);
}

}  // namespace rondo::transport
