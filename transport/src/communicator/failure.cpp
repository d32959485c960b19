// How a communicator fails: everything pending is given up, the peers of the node learn why, and
// the buffers become the caller's again. Ranks of other nodes are told of mismatches; what a failed
// message means is reported only after a moment, because the side channel may tell the reason.

#include <algorithm>
#include <chrono>
#include <string>

#include "base/best_effort.hpp"
#include "collective/blocks.hpp"
#include "communicator/communicator_core.hpp"
#include "memory/arena.hpp"
#include "memory/control_block.hpp"
#include "memory/memory.hpp"
#include "message/channel.hpp"
#include "recorder/names.hpp"
#include "world/world_core.hpp"

namespace rondo::transport {
namespace {

using namespace std::chrono_literals;

// After a message has failed, so long may the side channel take to tell why.
constexpr auto reason_limit = 500ms;

}  // namespace

void CommunicatorCore::fail(const Error& error) {
  if (!failure_ && error.code() == Errc::deadline_exceeded) world_->stalls().give_up(error);
  if (headers_ && !failure_ && error.code() == Errc::mismatch) {
    world_->tell_divergence(context_, error);
  }
  poison(error);
}

void CommunicatorCore::handle_divergence(const StatusMessage& status) {
  if (status.context != context_ || failure_ || !headers_) return;
  const auto found = std::ranges::find(group_.members, status.rank, &Member::world_rank);
  if (found == group_.members.end()) return;
  poison(Error(Errc::mismatch, status.text, world_->detail_of(status.rank)));
}

// In this order: peers can no longer reach the buffers, and only then records end and the caller
// gets the error.
void CommunicatorCore::poison(const Error& error) {
  if (failure_) return;
  if (!if_memory_allows([&] { failure_ = error; })) failure_ = world_->lacks_memory();
  world_->stalls().note_failure(error);
  drain_all();  // what is complete is not given up
  // Members that have sent something, and do not know of the failure yet, need not wait. Not those
  // that are gone: over ofi a rank that had been stopped was seen to crash in libfabric 1.17 when
  // it received here what they had sent. A rank that does not know yet that they are gone still
  // may.
  if_memory_allows(
      [this] { channel_.discard([this](int rank) { return world_->has_ended(rank); }); });
  given_up_ = oldest_ != nullptr ? oldest_->posted.sequence : next_sequence_;
  at_stage([&](auto& stage) { stage.fail(error); });
  for (OperationRecord* record = oldest_; record != nullptr;) {
    OperationRecord* next = record->next;
    give_up(*record);
    record = next;
  }
  oldest_ = newest_ = current_ = unpublished_ = nullptr;
  for (OperationRecord* record : parts_) give_up(*record);
  parts_.clear();
  if (log_ != nullptr) world_->note_failure(error);
}

void CommunicatorCore::give_up(OperationRecord& record) {
  if (!record.finished()) record.enter(Stage::failed);
  if (record.ordered) at_stage([&](auto& stage) { stage.give_up(record); });
  // No link may refer to the buffers any more: the caller gets them back.
  record.operation = nullptr;
  record.storage.clear();
  record.listed = false;
  recycle(record);
}

std::optional<Error> CommunicatorCore::failure_of_peers(const OperationRecord& record) const {
  for (std::size_t r = 0; r < group_.count(); ++r) {
    if (r == group_.index() || !has_failed(group_.members[r])) continue;
    // Messages between others go on; a collective needs everybody.
    if (record.ordered || waits_for(record, r)) return failure_of(group_.members[r]);
  }
  return std::nullopt;
}

// Names the rank that failed first, whose note has the text.
Error CommunicatorCore::failure_of(const Member& member) const {
  const auto explains = [](const Member& other) {
    return has_failed(other) && other.block->failure.text[0] != '\0';
  };
  const auto found = std::ranges::find_if(group_.members, explains);
  const Member& first = found == group_.members.end() ? member : *found;
  const shm::FailureNote& note = first.block->failure;
  const int rank = note.rank >= 0 ? note.rank : first.world_rank;
  const auto code = note.code != 0 ? static_cast<Errc>(note.code) : Errc::peer_lost;
  return {code, name_rank(*world_, first.world_rank) + " gave up: " + note.text.data(),
          world_->detail_of(rank)};
}

void CommunicatorCore::defer_failure(const Error& error) {
  deferred_failure_ = error;
  deferred_at_ = std::chrono::steady_clock::now();
}

// A message that was too long is a mismatch of both ranks, memory is lacked by this one, and any
// other error looks like a lost peer.
void CommunicatorCore::defer_failure(const LinkFailure& failure, const OperationRecord* record) {
  const int rank = group_.members[failure.member()].world_rank;
  const std::string operation = record != nullptr ? describe(*record) : "a message";
  const std::string here = " while rank " + std::to_string(world_->rank()) + " was in " +
                           operation + ": " + failure.what();
  if (failure.lacks_memory()) {
    return defer_failure(Error(Errc::out_of_memory,
                               name_rank(*world_, world_->rank()) + " lacks memory" + here,
                               world_->detail_of(world_->rank(), operation)));
  }
  const std::string what =
      failure.truncated()
          ? name_rank(*world_, rank) + " sent a longer message than was expected" + here
          : "the connection to " + name_rank(*world_, rank) + " failed" + here +
                "; see that rank's own messages for why";
  defer_failure(Error(failure.truncated() ? Errc::mismatch : Errc::peer_lost, what,
                      world_->detail_of(rank, operation)));
}

void CommunicatorCore::check_deferred_failure() {
  if (headers_) headers_->compare_all();
  // A member that gave up has cancelled its messages, and its note says why.
  if (deferred_failure_->code() == Errc::peer_lost) {
    const auto others = [this](const Member& member) {
      return &member != &group_.members[group_.index()] && has_failed(member);
    };
    const auto failed = std::ranges::find_if(group_.members, others);
    if (failed != group_.members.end()) return poison(failure_of(*failed));
  }
  if (std::chrono::steady_clock::now() - deferred_at_ >= reason_limit) poison(deferred_failure());
}

// The rank whose loss explains that of `rank`, perhaps itself. Nothing that came later explains a
// loss that was survived.
std::optional<int> CommunicatorCore::cause_of_loss(int rank) const {
  if (world_->stalls().has_survived_loss_of(rank)) return rank;
  return world_->first_lost(true);
}

// The rank whose loss explains that `rank` has posted something else. None where the lost rank is
// that one, or has ended because of the mismatch.
std::optional<int> CommunicatorCore::cause_of_mismatch(int rank) const {
  const std::optional<int> lost = world_->first_lost(true);
  if (!lost || *lost == rank) return std::nullopt;
  const auto member = std::ranges::find(group_.members, *lost, &Member::world_rank);
  const bool has_noted = member != group_.members.end() && has_failed(*member) &&
                         failure_of(*member).code() == Errc::mismatch;
  const bool has_told = std::ranges::count(world_->divergences(), *lost, &StatusMessage::rank) > 0;
  return has_noted || has_told ? std::nullopt : lost;
}

// The other end of a connection closes it when it gives up. If a rank was lost, that is the reason,
// or else if one had waited to its deadline.
Error CommunicatorCore::deferred_failure() const {
  const Error error = deferred_failure_.value();
  const bool differs = error.code() == Errc::mismatch;
  if (!differs && error.code() != Errc::peer_lost) return error;
  const int rank = error.detail().rank;
  const std::optional<int> lost = differs ? cause_of_mismatch(rank) : cause_of_loss(rank);
  const std::optional<GaveUp> first = world_->stalls().gave_up();
  if (!differs && !lost && first) {
    return {
        Errc::peer_lost,
        name_rank(*world_, first->rank) + " gave up: " + first->text + "; and " + text_of(error),
        world_->detail_of(first->at_fault, error.detail().operation)};
  }
  if (!lost || *lost == rank) return error;
  return {Errc::peer_lost, name_rank(*world_, *lost) + " is lost, and " + text_of(error),
          world_->detail_of(*lost, error.detail().operation)};
}

// A rank that left in order called fewer operations than the others: the text asks for that. But
// when another rank had been lost, or had given up, that is why it left. So is it when the rank
// did not leave, but ended as by an exception that nobody caught: on this node it has noted why,
// and of ranks of other nodes the store has told who was lost before.
Error CommunicatorCore::loss_of(int rank, const OperationRecord& record) const {
  const std::string operation = describe(front_of(record));
  const std::string here = "rank " + std::to_string(world_->rank());
  const std::string name = name_rank(*world_, rank);
  const bool left = world_->has_left(rank);
  const std::string end =
      (left ? " left" : " ended") + (" before it took part in " + operation) + ", which " + here;
  const std::optional<int> lost = cause_of_loss(rank);
  const std::optional<GaveUp> waited = world_->stalls().gave_up();
  const std::optional<GaveUp> noted = world_->stalls().loss_noted_by(rank);
  if (left && !lost && waited) {
    return {Errc::peer_lost,
            name_rank(*world_, waited->rank) + " gave up: " + waited->text + "; and " + name + end +
                " waits for",
            world_->detail_of(waited->at_fault, operation)};
  }
  if (lost && *lost != rank && (left || world_->peer_status().departure(*lost) != 0)) {
    return {Errc::peer_lost,
            name_rank(*world_, *lost) + " is lost, and " + name + end +
                " waits for; see the messages of rank " + std::to_string(*lost) + " for why",
            world_->detail_of(*lost, operation)};
  }
  if (!left && noted) {
    return {Errc::peer_lost, name + " gave up: " + noted->text + "; it" + end + " waits for",
            world_->detail_of(noted->at_fault, operation)};
  }
  const std::string what = left
                               ? " left in order before it took part in " + operation + ", which " +
                                     here + " waits for; do all ranks call the same operations?"
                               : " is lost: it ended while " + here + " was in " + operation +
                                     "; see that rank's own messages for why";
  return {Errc::peer_lost, name + what, world_->detail_of(rank, operation)};
}

Error CommunicatorCore::unobserved_after(int lost, const OperationRecord& record) const {
  const std::string operation = describe(front_of(record));
  return {Errc::peer_lost,
          name_rank(*world_, lost) + " is lost, and rank 0 has ended, which would tell rank " +
              std::to_string(world_->rank()) + " what became of those that it waits for in " +
              operation + "; see that rank's own messages for why",
          world_->detail_of(lost, operation)};
}

}  // namespace rondo::transport
