// The service thread, and the bookkeeping of allgather.
//
// The service thread runs a loop: it asks every task what it waits for, calls poll() for all of it,
// and lets each task attend to what happened. An eventfd wakes it when another thread has something
// for it. Whatever a task throws ends the loop but not the process: the World's thread learns of it
// as the failure of its connection.

#include "bootstrap/side_channel.hpp"

#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <exception>
#include <thread>
#include <utility>

#include <sys/eventfd.h>

#include <rondo/transport/blocked_signals.hpp>
#include <rondo/transport/error.hpp>

namespace rondo::transport::bootstrap {
namespace {

// Rounded up, so that a task is not attended to just before it is due, and then again and again.
int milliseconds_until(Clock::time_point time) {
  using std::chrono::milliseconds;
  constexpr milliseconds most{60'000};
  const auto left = std::chrono::ceil<milliseconds>(time - Clock::now());
  return static_cast<int>(std::clamp(left, milliseconds(0), most).count());
}

// Asking about thousands of connections takes longer than attending to one. Frames that come during
// a pause are attended to in one turn, so that the work of a bootstrap grows with the ranks, and
// not with their square: 1 ms for 4,096 connections.
std::chrono::nanoseconds pause_before(std::size_t connections) {
  constexpr std::size_t few = 256;
  return std::chrono::nanoseconds(connections > few ? connections * 250 : 0);
}

}  // namespace

ServiceThread::ServiceThread(std::vector<ServiceTask*> tasks)
    : tasks_(std::move(tasks)), bell_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  if (!bell_.valid()) throw Error(Errc::bootstrap_failed, "bootstrap: cannot make an eventfd");
  const BlockedSignals blocked;
  thread_ = std::thread([this] { run(); });
  ::pthread_setname_np(thread_.native_handle(), "rondo-service");
}

ServiceThread::~ServiceThread() {
  stop_ = true;
  wake();
  thread_.join();
}

void ServiceThread::wake() noexcept {
  const std::uint64_t one = 1;
  // It fails only when the bell rings already.
  [[maybe_unused]] const ssize_t written = ::write(bell_.get(), &one, sizeof one);
}

void ServiceThread::run() noexcept {
  try {
    serve();
  } catch (const std::exception& error) {
    fail(error.what());
  } catch (...) {
    fail("an exception of unknown type");
  }
}

void ServiceThread::fail(std::string_view why) noexcept {
  for (ServiceTask* task : tasks_) task->on_failure(why);
}

// Until the destructor asks to stop; after that each task has half a second to finish, in order.
void ServiceThread::serve() {
  using namespace std::chrono_literals;
  while (!stop_) turn(Clock::time_point::max());
  for (ServiceTask* task : tasks_) {
    const auto limit = Clock::now() + 500ms;
    task->finish();
    while (!task->finished() && Clock::now() < limit) turn(limit);
  }
}

void ServiceThread::turn(Clock::time_point limit) {
  entries_.assign(1, {.fd = bell_.get(), .events = POLLIN, .revents = 0});
  counts_.clear();
  for (ServiceTask* task : tasks_) {
    const std::size_t before = entries_.size();
    task->list(entries_);
    counts_.push_back(entries_.size() - before);
    limit = std::min(limit, task->due());
  }
  std::this_thread::sleep_for(pause_before(entries_.size()));
  const int ready = ::poll(entries_.data(), entries_.size(), milliseconds_until(limit));
  // Interrupted: nothing is known to be ready, but what is due is attended to.
  if (ready < 0) {
    for (pollfd& entry : entries_) entry.revents = 0;
  }
  if (entries_.front().revents != 0) {
    std::uint64_t rung = 0;
    [[maybe_unused]] const ssize_t count = ::read(bell_.get(), &rung, sizeof rung);
  }
  const auto now = Clock::now();
  std::span<const pollfd> rest(entries_);
  rest = rest.subspan(1);
  for (std::size_t i = 0; i < tasks_.size(); ++i) {
    tasks_[i]->attend(rest.first(counts_[i]), now);
    rest = rest.subspan(counts_[i]);
  }
}

// A part of another round can only come from a faulty peer, and is dropped.
bool AllgatherRounds::add(std::size_t rank, Blob blob, Time deadline) {
  if (blob.round != round_ || came_[rank]) return false;
  if (arrived_ == 0) deadline_ = deadline;
  parts_[rank] = std::move(blob.bytes);
  came_[rank] = true;
  arrived_ += 1;
  return true;
}

std::optional<Blobs> AllgatherRounds::complete() {
  if (arrived_ != parts_.size()) return std::nullopt;
  Blobs all{.round = round_, .parts = std::exchange(parts_, std::vector<std::string>(arrived_))};
  came_.assign(came_.size(), false);
  arrived_ = 0;
  round_ += 1;
  deadline_ = Time::max();
  return all;
}

std::string AllgatherRounds::missing() const {
  constexpr std::size_t most_names = 8;  // a longer list is not read
  std::string names;
  std::size_t count = 0;
  for (std::size_t r = 0; r < came_.size(); ++r) {
    if (came_[r]) continue;
    count += 1;
    if (count <= most_names) names += (count > 1 ? ", " : "") + std::to_string(r);
  }
  if (count > most_names) names += " and " + std::to_string(count - most_names) + " more";
  return (count == 1 ? "rank " : "ranks ") + names + " of " + std::to_string(came_.size()) +
         " did not come";
}

}  // namespace rondo::transport::bootstrap
