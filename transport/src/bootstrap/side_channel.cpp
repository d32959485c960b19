// The service thread; side channels between ranks that are threads of one process; and the
// bookkeeping of allgather that these have in common with the store.
//
// The service thread runs a loop: it asks every task what it waits for, calls poll() for all of it,
// and lets each task attend to what happened. An eventfd wakes it when another thread has something
// for it. Whatever a task throws ends the loop but not the process: the World's thread learns of it
// as the failure of its connection.
//
// The channels of threads share one hub, which lives until the last of them is gone. It has the
// allgather of all ranks and an inbox for each of them. No lock is held while a handler runs, so
// handlers may tell.

#include "bootstrap/side_channel.hpp"

#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <mutex>
#include <thread>
#include <utility>

#include <sys/eventfd.h>

#include <rondo/transport/error.hpp>

#include "base/best_effort.hpp"
#include "base/blocked_signals.hpp"
#include "verdict/wait_graph.hpp"

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
  if (!bell_.valid()) throw Error(Errc::rendezvous_failed, "rendezvous: cannot make an eventfd");
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

namespace {

// One allgather after the other, each of which waits for all threads. A round cannot begin before
// all have read the last one, since it needs them all.
class ThreadAllgather {
 public:
  ThreadAllgather(int ranks, std::chrono::milliseconds deadline)
      : deadline_(deadline), rounds_(static_cast<std::size_t>(ranks)) {}

  // The rank with the last part completes the round and wakes the others.
  std::vector<std::string> exchange(int rank, std::string_view mine) {
    const auto deadline = AllgatherRounds::Time::clock::now() + deadline_;
    std::unique_lock lock(mutex_);
    if (!failure_.empty()) throw Error(Errc::rendezvous_failed, failure_);
    const std::uint64_t round = rounds_.round();
    static_cast<void>(rounds_.add(static_cast<std::size_t>(rank),
                                  {.round = round, .bytes = std::string(mine)}, deadline));
    if (auto all = rounds_.complete()) {
      result_ = std::move(all->parts);
      changed_.notify_all();
    } else if (!changed_.wait_until(
                   lock, deadline, [&] { return rounds_.round() != round || !failure_.empty(); })) {
      fail("rendezvous: " + rounds_.missing() + " in time");
    }
    if (rounds_.round() == round) throw Error(Errc::rendezvous_failed, failure_);
    return result_;
  }

  // There can be no further round without this rank.
  void leave(int rank) {
    const std::scoped_lock lock(mutex_);
    if (!failure_.empty()) return;
    const bool others_wait = rounds_.deadline() != AllgatherRounds::Time::max();
    if_memory_allows([&] {
      fail("rendezvous: rank " + std::to_string(rank) +
           (others_wait ? " left before all ranks had come" : " has left"));
    });
  }

 private:
  void fail(std::string text) {
    failure_ = std::move(text);
    changed_.notify_all();
  }

  const std::chrono::milliseconds deadline_;
  std::mutex mutex_;
  std::condition_variable changed_;
  AllgatherRounds rounds_;
  std::vector<std::string> result_;
  std::string failure_;
};

// The messages that one rank has not handled yet.
class Inbox {
 public:
  void watch(std::function<void(const StatusMessage&)> handler) {
    std::unique_lock lock(mutex_);
    handler_ = std::move(handler);
    deliver(lock);
  }

  void put(const StatusMessage& message) {
    const std::scoped_lock lock(mutex_);
    if (!closed_) waiting_.push_back(message);
  }

  void deliver() {
    std::unique_lock lock(mutex_);
    deliver(lock);
  }

  // Waits for the handler that is running, because it may use what its owner destroys next.
  void close() {
    std::unique_lock lock(mutex_);
    closed_ = true;
    waiting_.clear();
    idle_.wait(lock, [&] { return !delivering_; });
    handler_ = nullptr;
  }

 private:
  // One thread delivers, for all that put messages meanwhile; so the handler is called for one
  // message at a time.
  void deliver(std::unique_lock<std::mutex>& lock) {
    if (!handler_ || delivering_) return;
    delivering_ = true;
    while (!waiting_.empty()) {
      const StatusMessage message = std::move(waiting_.front());
      waiting_.pop_front();
      lock.unlock();
      if_memory_allows([&] { handler_(message); });
      lock.lock();
    }
    delivering_ = false;
    idle_.notify_all();
  }

  std::mutex mutex_;
  std::condition_variable idle_;
  std::function<void(const StatusMessage&)> handler_;
  std::deque<StatusMessage> waiting_;
  bool delivering_ = false;
  bool closed_ = false;
};

struct Hub {
  Hub(int ranks, std::chrono::milliseconds deadline)
      : allgather(ranks, deadline),
        inboxes(static_cast<std::size_t>(ranks)),
        waits(static_cast<std::size_t>(ranks)) {}
  ThreadAllgather allgather;
  std::mutex order;  // held while one message is put into all inboxes; of `waits`, too
  std::vector<Inbox> inboxes;
  WaitGraph waits;
};

class ThreadChannel final : public SideChannel {
 public:
  ThreadChannel(int rank, std::shared_ptr<Hub> hub) : rank_(rank), hub_(std::move(hub)) {}
  ThreadChannel(const ThreadChannel&) = delete;
  ThreadChannel& operator=(const ThreadChannel&) = delete;

  ~ThreadChannel() override {
    if (!left_) tell({.kind = StatusMessage::Kind::left, .rank = rank_});
    hub_->allgather.leave(rank_);
    hub_->inboxes[static_cast<std::size_t>(rank_)].close();
  }

  std::vector<std::string> allgather(std::string_view mine) override {
    return hub_->allgather.exchange(rank_, mine);
  }

  void watch(std::function<void(const StatusMessage&)> handler) override {
    hub_->inboxes[static_cast<std::size_t>(rank_)].watch(std::move(handler));
  }

  // No other message is put into an inbox until this one is in all of them. So what a rank tells
  // because of it comes after it everywhere: every rank hears of a mismatch before it hears that
  // the ranks that gave up because of it have left.
  void tell(const StatusMessage& message) noexcept override {
    if (message.kind == StatusMessage::Kind::left && message.rank == rank_) left_ = true;
    if (message.kind == StatusMessage::Kind::waits) {
      if_memory_allows([&] { note_wait(decode_ranks(message.text)); });
      return;
    }
    if (message.kind == StatusMessage::Kind::asks) {
      if_memory_allows([&] { answer(decode_ranks(message.text)); });
      return;
    }
    {
      const std::scoped_lock lock(hub_->order);
      for_each_other([&](Inbox& inbox) { put(inbox, message); });
    }
    for_each_other([](Inbox& inbox) { inbox.deliver(); });
  }

 private:
  // A message without its text seldom needs memory.
  static void put(Inbox& inbox, const StatusMessage& message) noexcept {
    if (if_memory_allows([&] { inbox.put(message); })) return;
    if_memory_allows([&] {
      inbox.put({.kind = message.kind, .rank = message.rank, .context = message.context});
    });
  }

  void note_wait(const std::vector<int>& awaited) {
    const std::scoped_lock lock(hub_->order);
    hub_->waits.set(rank_, awaited);
  }

  void answer(const std::vector<int>& missing) {
    StatusMessage answer{.kind = StatusMessage::Kind::at_fault};
    {
      const std::scoped_lock lock(hub_->order);
      answer.rank = hub_->waits.fault(missing);
    }
    Inbox& own = hub_->inboxes[static_cast<std::size_t>(rank_)];
    own.put(answer);
    own.deliver();
  }

  void for_each_other(auto&& call) {
    for (std::size_t r = 0; r < hub_->inboxes.size(); ++r) {
      if (r != static_cast<std::size_t>(rank_)) call(hub_->inboxes[r]);
    }
  }

  int rank_;
  std::shared_ptr<Hub> hub_;
  std::atomic<bool> left_ = false;
};

}  // namespace

std::vector<std::unique_ptr<SideChannel>> make_thread_channels(
    int ranks, std::chrono::milliseconds rendezvous_deadline) {
  const auto hub = std::make_shared<Hub>(ranks, rendezvous_deadline);
  std::vector<std::unique_ptr<SideChannel>> channels;
  channels.reserve(static_cast<std::size_t>(ranks));
  for (int r = 0; r < ranks; ++r) channels.push_back(std::make_unique<ThreadChannel>(r, hub));
  return channels;
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
