#include "data/prefetcher.hpp"

#include <pthread.h>

#include <csignal>
#include <utility>

namespace rondo::train {
namespace {

// Blocks all signals of the calling thread, and so of the threads that it starts meanwhile: a
// program's signal handlers shall run on its own threads.
class SignalsBlocked {
 public:
  SignalsBlocked() {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  SignalsBlocked(const SignalsBlocked&) = delete;
  SignalsBlocked& operator=(const SignalsBlocked&) = delete;
  ~SignalsBlocked() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

 private:
  sigset_t before_ = {};
};

}  // namespace

Prefetcher::Prefetcher(Prepare prepare) : prepare_(std::move(prepare)) {
  const SignalsBlocked blocked;
  thread_ = std::thread([this] { run(); });
}

Prefetcher::~Prefetcher() {
  {
    const std::lock_guard lock(mutex_);
    stopped_ = true;
  }
  wanted_or_stopped_.notify_one();
  thread_.join();
}

// What is begun but not wanted any more does not count.
bool Prefetcher::under_way(const SampleRange& range) const {
  return wanted_ ? *wanted_ == range : current_ == range;
}

void Prefetcher::announce(const SampleRange& range) {
  {
    const std::lock_guard lock(mutex_);
    if (under_way(range)) return;
    wanted_ = range;
  }
  wanted_or_stopped_.notify_one();
}

std::size_t Prefetcher::take(const SampleRange& range) {
  announce(range);
  std::unique_lock lock(mutex_);
  prepared_.wait(lock, [this] { return !wanted_ && !working_; });
  current_.reset();
  if (failure_) std::rethrow_exception(std::exchange(failure_, nullptr));
  return std::exchange(buffer_, 1 - buffer_);
}

void Prefetcher::run() {
  std::unique_lock lock(mutex_);
  for (;;) {
    wanted_or_stopped_.wait(lock, [this] { return wanted_ || stopped_; });
    if (stopped_) return;
    const SampleRange range = *wanted_;
    const std::size_t buffer = buffer_;
    current_ = range;
    wanted_.reset();
    working_ = true;
    failure_ = nullptr;
    lock.unlock();
    std::exception_ptr failure;
    try {
      prepare_(range, buffer);
    } catch (...) {
      failure = std::current_exception();
    }
    lock.lock();
    working_ = false;
    failure_ = std::move(failure);
    prepared_.notify_one();
  }
}

}  // namespace rondo::train
