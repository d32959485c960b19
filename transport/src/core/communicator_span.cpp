// What a communicator does differently when its ranks are on several nodes.

#include <utility>

#include "core/communicator_core.hpp"
#include "core/describe.hpp"
#include "core/multi_node.hpp"
#include "core/world_core.hpp"

namespace rondo::transport {
namespace {

// After a message has failed, so long may the side channel take to tell why.
constexpr auto patience = std::chrono::milliseconds(500);

}  // namespace

void CommunicatorCore::span_nodes(std::shared_ptr<CommunicatorCore> down,
                                  std::shared_ptr<CommunicatorCore> up) {
  span_ = std::make_unique<MultiNode>(*world_, group_, channel_, std::move(down), std::move(up));
  for (const rendezvous::News& news : world_->divergences()) hear_divergence(news);
}

bool CommunicatorCore::announce_queued() {
  for (; unpublished_ != nullptr; unpublished_ = unpublished_->next) {
    span_->announce(*unpublished_);
    unpublished_->enter(Stage::published);
  }
  return true;
}

void CommunicatorCore::compare_header(OperationRecord& record) {
  HeaderExchange& header = record.header;
  if (header.compared || !header.received.done()) return;
  compare(record, span_->previous(), header.theirs.fingerprint, header.theirs.sequence);
  header.compared = true;
}

bool CommunicatorCore::drain_headers() {
  bool moved = false;
  for (OperationRecord* record = oldest_; record != current_; record = record->next) {
    if (record->stage != Stage::draining) continue;
    if (!span_->heard(*record)) break;
    compare_header(*record);
    record->enter(Stage::complete);
    moved = true;
  }
  unlist_complete();
  return moved;
}

// Whatever an algorithm is stuck in, a difference explains it.
void CommunicatorCore::compare_all_headers() {
  for (OperationRecord* record = oldest_; record != nullptr; record = record->next) {
    if (record->stage != Stage::queued) compare_header(*record);
  }
}

// A mismatch of what an operation has posted on its levels is explained by its own header, or by
// that of another rank.
Progress CommunicatorCore::step_operation(OperationRecord& record) {
  try {
    return record.operation->step(group_, record.posted);
  } catch (const Error& error) {
    if (error.code() != Errc::mismatch) throw;
    suspect(error);
    return Progress::idle;
  }
}

void CommunicatorCore::suspect(const Error& error) {
  suspicion_ = error;
  suspected_ = std::chrono::steady_clock::now();
}

void CommunicatorCore::suspect(const LinkFailure& failure) {
  const int rank = group_.members[failure.member()].world_rank;
  const RankInfo& info = world_->peer(rank).info;
  const std::string operation = current_ != nullptr ? describe(*current_) : "a message";
  const std::string here = " while rank " + std::to_string(world_->rank()) + " was in " +
                           operation + ": " + failure.what();
  const std::string what =
      failure.truncated()
          ? name_rank(*world_, rank) + " sent a longer message than was expected" + here
          : "the connection to " + name_rank(*world_, rank) + " failed" + here +
                "; see that rank's own messages for why";
  suspect(Error(failure.truncated() ? Errc::mismatch : Errc::peer_lost, what,
                {.rank = rank, .pid = info.pid, .host = info.host, .operation = operation}));
}

void CommunicatorCore::look_at_suspicion() {
  compare_all_headers();
  if (std::chrono::steady_clock::now() - suspected_ >= patience) poison(Error(*suspicion_));
}

}  // namespace rondo::transport
