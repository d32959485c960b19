// Which rank keeps the others waiting (stalls.hpp), and which error was the first.
//
// The ranks that this one waits for are written into its header in shared memory, where the ranks
// of its node read them, and are sent to the store, which alone hears the ranks of all nodes. When
// a deadline passes, the store is asked for the fault. If it does not answer in time, the headers
// of the node decide, because an error that names a neighbour is better than none. The error that
// this rank gives up with is published in both ways before the rank leaves, so that its end is not
// taken for the cause.

#include "world/stalls.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <vector>

#include "base/best_effort.hpp"
#include "base/pack.hpp"
#include "memory/control_block.hpp"
#include "recorder/names.hpp"
#include "verdict/side_channel.hpp"
#include "verdict/wait_graph.hpp"
#include "world/world_core.hpp"

namespace rondo::transport {
namespace {

using namespace std::chrono_literals;
using Kind = StatusMessage::Kind;

// How long the store may take to answer.
constexpr auto answer_time = 1s;
// How often a rank that waits long looks whether it waits for others than it has told; and for how
// long what it told counts when it does not look.
constexpr auto tell_interval = 100ms;
constexpr auto tell_lifetime = 1s;

static_assert(std::tuple_size_v<decltype(shm::RankHeader::awaited)> == most_awaited);

// A peer that is writing at this moment is read in part: then a rank that waits is named, as it
// would be if nobody had told.
std::vector<int> awaited_by(const shm::RankHeader& header) {
  std::vector<int> ranks;
  for (const auto& awaited : header.awaited) {
    const std::uint32_t value = awaited.load(std::memory_order_relaxed);
    if (value == 0) break;
    ranks.push_back(static_cast<int>(value - 1));
  }
  return ranks;
}

}  // namespace

void Stalls::publish(std::span<const int> missing) const noexcept {
  std::size_t i = 0;
  for (auto& awaited : world_->header().awaited) {
    const std::uint32_t value = i < missing.size() ? static_cast<std::uint32_t>(missing[i]) + 1 : 0;
    awaited.store(value, std::memory_order_relaxed);
    i += 1;
  }
}

// An operation that has told, but does not look any more because nobody waits for it or tests it,
// makes room for others after `tell_lifetime`.
bool Stalls::may_tell(const Waiter& waiter, Time now) const noexcept {
  if (waiter_ == nullptr) return true;
  return now - told_at_ >= (waiter_ == &waiter ? tell_interval : tell_lifetime);
}

void Stalls::tell(const Waiter& waiter, std::span<const int> missing, Time now) {
  waiter_ = &waiter;
  told_at_ = now;
  tell_unless_told(missing);
}

// A failed wait stays told, because it says why this rank gives up: others may ask for whom it
// waits between its failure and its leaving. When a later operation with others ends well, this
// shows that the rank goes on.
void Stalls::end(const Waiter& waiter) noexcept {
  const bool has_told = waiter_ == &waiter;
  if (has_told) waiter_ = nullptr;
  if (waiter.stage == Stage::failed) return;
  const bool goes_on = waiter.failures_before == failures_;
  if (has_told || (goes_on && waiter_ == nullptr)) {
    if_memory_allows([this] { tell_unless_told({}); });
  }
  if (goes_on && waiter.needs_others && waiter.stage == Stage::complete) survive_losses();
}

void Stalls::tell_unless_told(std::span<const int> missing) {
  const auto told = missing.first(std::min(missing.size(), most_awaited));
  if (std::ranges::equal(told, told_)) return;
  told_.assign(told.begin(), told.end());
  publish(told);
  world_->tell(Kind::waits, encode_ranks(told));
}

// When the store does not answer, what the ranks of this node know counts; or what a rank has told
// that gave up before the store ended. A store that has not ended is that of a rank 0 which does
// not run.
std::optional<Fault> Stalls::find_fault(std::span<const int> missing, FaultSearch& search) {
  const auto now = std::chrono::steady_clock::now();
  if (!search.asked_at && ask(missing)) search.asked_at = now;
  const std::optional<int> answer = world_->peer_status().fault();
  if (!answer && search.asked_at && now - *search.asked_at < answer_time) return std::nullopt;
  const int rank = answer ? *answer : fault_on_node(missing);
  if (!answer && rank >= 0 && !world_->same_node(rank)) {
    const std::optional<GaveUp> first = gave_up();
    if (first && first->at_fault >= 0) {
      return Fault{.rank = first->at_fault,
                   .clause = ", and " + name_rank(*world_, first->rank) + " gave up because of " +
                             name_rank(*world_, first->at_fault)};
    }
    if (!world_->store_has_ended()) {
      return Fault{.rank = 0,
                   .clause = ", and the store of " + name_rank(*world_, 0) + " is silent"};
    }
  }
  if (rank < 0 || (missing.size() == 1 && missing.front() == rank)) return Fault{.rank = rank};
  if (std::ranges::count(missing, rank) > 0) {
    return Fault{.rank = rank,
                 .clause = ", of whom rank " + std::to_string(rank) + " waits for no other"};
  }
  return Fault{.rank = rank,
               .clause = (missing.size() == 1 ? ", which waits for " : ", which wait for ") +
                         name_rank(*world_, rank)};
}

// False when there is no store, because there is one node.
bool Stalls::ask(std::span<const int> missing) {
  world_->peer_status().forget_fault();
  return world_->tell(Kind::asks, encode_ranks(missing));
}

// As far as the ranks of this node know; -1 when none is missing.
int Stalls::fault_on_node(std::span<const int> missing) const {
  WaitGraph waits(world_->peers().size());
  int rank = 0;
  for (const Peer& peer : world_->peers()) {
    if (peer.memory) waits.set(rank, awaited_by(peer.memory->header()));
    rank += 1;
  }
  return waits.fault(missing);
}

void Stalls::give_up(const Error& error) noexcept {
  shm::RankHeader& mine = world_->header();
  bool is_told = mine.gave_up.load(std::memory_order_relaxed) != 0;
  if_memory_allows([&] { is_told = is_told || world_->peer_status().gave_up().has_value(); });
  if (is_told) return;
  write_note(mine.deadline_note, error);
  // Release: the note comes before the word.
  mine.gave_up.store(1, std::memory_order_release);
  if_memory_allows([&] {
    const GaveUp told{.at_fault = error.detail().rank, .text = mine.deadline_note.text.data()};
    world_->tell(Kind::gave_up, wire::pack(told));
  });
}

std::optional<GaveUp> Stalls::gave_up() const {
  int rank = 0;
  for (const Peer& peer : world_->peers()) {
    // Acquire: see give_up().
    if (rank != world_->rank() && peer.memory &&
        peer.memory->header().gave_up.load(std::memory_order_acquire) != 0) {
      const shm::FailureNote& note = peer.memory->header().deadline_note;
      return GaveUp{.rank = rank, .at_fault = note.rank, .text = note.text.data()};
    }
    rank += 1;
  }
  return world_->peer_status().gave_up();
}

void Stalls::note_failure(const Error& error) noexcept {
  failures_ += 1;
  if (error.code() != Errc::peer_lost) return;
  has_failed_since_ = true;
  if_memory_allows([this] { survived_.resize(world_->peers().size()); });
  shm::RankHeader& mine = world_->header();
  if (mine.saw_loss.load(std::memory_order_relaxed) != shm::LossNote::none) return;
  write_note(mine.loss_note, error);
  // Release: the note comes before the word.
  mine.saw_loss.store(shm::LossNote::there, std::memory_order_release);
}

// All that have ended by now, of which an error names but one: a host may have had several. A peer
// may be reading the note, so no other one takes its place.
void Stalls::survive_losses() noexcept {
  if (!has_failed_since_) return;
  has_failed_since_ = false;
  for (int rank = 0; rank < static_cast<int>(survived_.size()); ++rank) {
    if (rank != world_->rank() && world_->has_ended(rank) && !world_->has_left(rank)) {
      survived_[static_cast<std::size_t>(rank)] = true;
    }
  }
  world_->header().saw_loss.store(shm::LossNote::survived, std::memory_order_relaxed);
}

bool Stalls::has_survived_loss_of(int rank) const noexcept {
  const auto index = static_cast<std::size_t>(rank);
  return index < survived_.size() && survived_[index];
}

std::optional<GaveUp> Stalls::loss_noted_by(int rank) const {
  const Peer& peer = world_->peer(rank);
  // Acquire: see note_failure().
  if (!peer.memory) return std::nullopt;
  if (peer.memory->header().saw_loss.load(std::memory_order_acquire) != shm::LossNote::there) {
    return std::nullopt;
  }
  const shm::FailureNote& note = peer.memory->header().loss_note;
  return GaveUp{.rank = rank, .at_fault = note.rank, .text = note.text.data()};
}

}  // namespace rondo::transport
