// The loop of the service thread: ask every task what it waits for, poll() for all of it, let each
// task attend to what happened.
//
// An eventfd wakes it when another thread has something for it. Whatever a task throws ends the
// loop but not the process: the World's thread learns of it as the failure of its connection.

#include "bootstrap/service_thread.hpp"

#include <pthread.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdint>
#include <exception>
#include <utility>

#include <rondo/transport/error.hpp>

namespace rondo::transport::bootstrap {
namespace {

// Blocks all signals while the thread is started, because a thread inherits the mask of its
// creator. Faults stay: they belong to the thread that causes them.
class BlockedSignals {
 public:
  BlockedSignals() {
    sigset_t all;
    ::sigfillset(&all);
    for (const int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT}) ::sigdelset(&all, fault);
    ::pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  BlockedSignals(const BlockedSignals&) = delete;
  BlockedSignals& operator=(const BlockedSignals&) = delete;
  ~BlockedSignals() { ::pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

 private:
  sigset_t before_ = {};
};

// Rounded up, so that a task is not attended to just before it is due, and then again and again.
int milliseconds_until(Clock::time_point time) {
  using std::chrono::milliseconds;
  constexpr milliseconds most{60'000};
  const auto left = std::chrono::ceil<milliseconds>(time - Clock::now());
  return static_cast<int>(std::clamp(left, milliseconds(0), most).count());
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

}  // namespace rondo::transport::bootstrap
