// The functions by which requests wait on a communicator: for the end of one operation or of the
// first of several, for a look at its peers, and for the end of one whose request is destroyed.

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <new>
#include <optional>
#include <span>
#include <vector>

#include "base/world_lock.hpp"
#include "communicator/communicator_core.hpp"
#include "communicator/wait.hpp"
#include "recorder/names.hpp"
#include "world/world_core.hpp"

namespace rondo::transport {

// An operation that is complete at once waits for nothing, and so would never look for an abort by
// another thread of this rank.
void CommunicatorCore::fail_if_own_abort() {
  if (failure_ || !world_->has_aborted_itself()) return;
  if (const auto error = world_->aborted()) fail(*error);
}

// Throws the communicator's failure, also when another operation was what failed.
bool CommunicatorCore::wait(OperationRecord& record, const WaitLimit& limit) {
  // Most small operations end within a microsecond: no clock is read for them, unless they were
  // waited for before.
  const bool was_waited_for = !record.finished() && record.wanted_since.has_value();
  fail_if_own_abort();
  constexpr int quick_checks = 64;
  for (int i = 0; i < quick_checks && !record.finished() && !world_->oversubscribed(); ++i) {
    world_->progress();
  }
  if (!record.finished()) {
    const Awaited awaited{.communicator = this, .record = &record};
    try {
      if (!Wait({&awaited, 1}, limit).run()) return false;
      record.stamp.end();
    } catch (const Error& error) {
      fail(error);
    }
  } else if (was_waited_for) {
    record.stamp.end();
  }
  world_->stalls().end(record);  // also where another call has seen its end
  if (record.stage == Stage::failed) throw Error(failure_.value());
  return true;
}

// The request that ended is emptied, so that the next call finds another. One whose operation has
// failed throws, and stays.
std::optional<std::size_t> CommunicatorCore::wait_any(
    std::span<Request> requests, std::optional<std::chrono::nanoseconds> limit) {
  std::vector<Awaited> all;
  // The request that ends may be the last that refers to the World, whose lock is held here.
  std::shared_ptr<CommunicatorCore> keeps_world;
  for (const Request& request : requests) {
    if (request.record_ == nullptr) continue;
    all.push_back({request.core_.get(), request.record_});
    keeps_world = request.core_;
  }
  if (all.empty()) return std::nullopt;
  const std::lock_guard entry(all.front().communicator->world().lock());
  const auto first_ended = [requests] {
    return std::ranges::find_if(requests, [](const Request& request) {
      return request.record_ != nullptr && request.record_->finished();
    });
  };
  for (const Awaited& awaited : all) awaited.communicator->fail_if_own_abort();
  auto ended = first_ended();
  if (ended == requests.end()) {
    Wait wait(all, {.limit = limit});
    try {
      if (!wait.run()) return std::nullopt;
    } catch (const Error& error) {
      wait.failing().fail(error);
    }
    ended = first_ended();
    ended->record_->stamp.end();
  }
  ended->core_->world().stalls().end(*ended->record_);
  if (ended->record_->stage == Stage::failed) throw Error(ended->core_->failure_.value());
  *ended = Request();
  return static_cast<std::size_t>(ended - requests.begin());
}

// Called by every Request::test(): a look at all peers each time would cost more than the test.
void CommunicatorCore::check_peers(OperationRecord& record) {
  const auto now = std::chrono::steady_clock::now();
  if (now - round_began_at_ >= check_interval) {
    round_began_at_ = now;
    ++round_of_checks_;
  }
  if (record.checked_in == round_of_checks_) return;
  record.checked_in = round_of_checks_;
  const Awaited awaited{.communicator = this, .record = &record};
  try {
    Wait wait({&awaited, 1}, {});
    wait.check_peers();
    wait.tell_if_late();
  } catch (const Error& error) {
    fail(error);
  }
}

// Buffers are lent until their operation has ended, so a Request waits when it is destroyed.
void CommunicatorCore::release(OperationRecord& record) noexcept {
  try {
    static_cast<void>(wait(record, {}));
  } catch (const Error&) {  // NOLINT(bugprone-empty-catch): nothing can be thrown here
    // The communicator is poisoned; its next call tells.
  } catch (const std::bad_alloc&) {
    fail(world_->lacks_memory());
  }
  world_->stalls().end(record);
  record.held = false;
  recycle(record);
}

}  // namespace rondo::transport
