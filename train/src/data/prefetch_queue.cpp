// Every buffer is a slot: free, being prepared, ready, or held by the owner. A worker first helps
// with a range that has been begun and still has parts for it; if there is none, it begins the next
// announced range in a free slot. So a range that is needed soon has all threads. A range that is
// not wanted any more gets no more parts, and its slot is free when the parts under way are done.
//
// One mutex guards everything but the work itself, which runs unlocked.

#include "data/prefetch_queue.hpp"

#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <charconv>
#include <stdexcept>
#include <system_error>
#include <utility>

#include <rondo/transport/blocked_signals.hpp>

namespace rondo::train {
namespace {

// While it lives, the calling thread runs on `cpus`, and threads that it starts stay on them.
class OnCpus {
 public:
  explicit OnCpus(const std::vector<int>& cpus) : pinned_(!cpus.empty()) {
    if (!pinned_) return;
    if (pthread_getaffinity_np(pthread_self(), sizeof before_, &before_) != 0) {
      throw std::invalid_argument(
          "data.decoder_cpus: the CPUs of this host cannot be read; leave the key out");
    }
    cpu_set_t wanted;
    CPU_ZERO(&wanted);
    for (const int cpu : cpus) CPU_SET(static_cast<std::size_t>(cpu), &wanted);
    if (pthread_setaffinity_np(pthread_self(), sizeof wanted, &wanted) == 0) return;
    throw std::invalid_argument("data.decoder_cpus: none of these CPUs may be used by this rank");
  }
  OnCpus(const OnCpus&) = delete;
  OnCpus& operator=(const OnCpus&) = delete;
  ~OnCpus() {
    if (pinned_) pthread_setaffinity_np(pthread_self(), sizeof before_, &before_);
  }

 private:
  bool pinned_;
  cpu_set_t before_ = {};
};

}  // namespace

PrefetchQueue::PrefetchQueue(Work work, Options options)
    : work_(std::move(work)), ahead_(std::max<std::size_t>(options.ahead, 1)), slots_(ahead_ + 1) {
  entries_.reserve(ahead_ + 1);
  // Threads inherit the mask of signals and the CPUs of the thread that starts them.
  const transport::BlockedSignals blocked;
  const OnCpus pinned(options.cpus);
  try {
    for (std::size_t i = 0; i < std::max<std::size_t>(options.workers, 1); ++i) {
      workers_.emplace_back([this, i] { run(i); });
    }
  } catch (...) {
    stop();
    throw;
  }
}

PrefetchQueue::~PrefetchQueue() { stop(); }

void PrefetchQueue::stop() {
  {
    const std::lock_guard lock(mutex_);
    stopped_ = true;
  }
  work_or_stopped_.notify_all();
  for (std::thread& worker : workers_) worker.join();
}

std::size_t PrefetchQueue::find(const SampleRange& range) const {
  const auto found = std::ranges::find(entries_, range, &Entry::range);
  return static_cast<std::size_t>(found - entries_.begin());
}

void PrefetchQueue::forget_first(std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) {
    if (entries_[i].slot) release(*entries_[i].slot);
  }
  entries_.erase(entries_.begin(), entries_.begin() + static_cast<std::ptrdiff_t>(count));
}

// Parts under way keep it from being free.
void PrefetchQueue::release(std::size_t slot) {
  slots_[slot].wanted = false;
  if (slots_[slot].is_idle()) slots_[slot] = {};
}

void PrefetchQueue::announce(const SampleRange& range) {
  {
    const std::lock_guard lock(mutex_);
    if (find(range) < entries_.size()) return;
    // The oldest announcement is dropped: a caller that announces more than `ahead` ranges does not
    // take the oldest any more.
    if (entries_.size() >= ahead_) forget_first(1);
    entries_.push_back({range, {}});
  }
  work_or_stopped_.notify_all();
}

std::size_t PrefetchQueue::take(const SampleRange& range) {
  std::unique_lock lock(mutex_);
  // First the buffer goes back: the range may need it.
  if (held_) release(*std::exchange(held_, {}));
  forget_first(find(range));
  // A range that nobody announced is prepared now, and the caller waits for all of it.
  if (entries_.empty()) entries_.push_back({range, {}});
  work_or_stopped_.notify_all();
  // No other thread removes entries, and the first one keeps its place.
  ready_.wait(lock, [this] {
    const Entry& first = entries_.front();
    return first.slot && (slots_[*first.slot].is_ready() ||
                          (slots_[*first.slot].failure && slots_[*first.slot].is_idle()));
  });
  const std::size_t slot = *entries_.front().slot;
  if (const std::exception_ptr failure = slots_[slot].failure) {
    forget_first(1);
    work_or_stopped_.notify_all();
    std::rethrow_exception(failure);
  }
  entries_.erase(entries_.begin());
  held_ = slot;
  return slot;
}

// The slot with work whose range is needed first.
std::optional<std::size_t> PrefetchQueue::slot_with_work() const {
  for (const Entry& entry : entries_) {
    if (entry.slot && slots_[*entry.slot].has_work()) return entry.slot;
  }
  return std::nullopt;
}

// Ranges are begun one at a time, because the owner's begin() may keep a state, such as the order
// of an epoch.
PrefetchQueue::Entry* PrefetchQueue::entry_to_begin() {
  if (beginning_) return nullptr;
  const auto waits = [](const Entry& entry) { return !entry.slot; };
  const auto found = std::ranges::find_if(entries_, waits);
  return found == entries_.end() ? nullptr : &*found;
}

std::optional<std::size_t> PrefetchQueue::free_slot() const {
  const auto found = std::ranges::find(slots_, false, &Slot::used);
  if (found == slots_.end()) return std::nullopt;
  return static_cast<std::size_t>(found - slots_.begin());
}

void PrefetchQueue::begin(Entry& entry, std::size_t slot, std::unique_lock<std::mutex>& lock) {
  const SampleRange range = entry.range;
  entry.slot = slot;
  slots_[slot] = {.used = true, .wanted = true, .beginning = true};
  beginning_ = true;
  lock.unlock();
  std::int64_t parts = 0;
  std::exception_ptr failure;
  try {
    parts = work_.begin(range, slot);
  } catch (...) {
    failure = std::current_exception();
  }
  lock.lock();
  beginning_ = false;
  // The entry may be gone, and others may have moved: only the slot is still where it was.
  Slot& mine = slots_[slot];
  mine.beginning = false;
  mine.parts = parts;
  mine.failure = failure;
  if (!mine.wanted) mine = {};
  work_or_stopped_.notify_all();
  ready_.notify_one();
}

void PrefetchQueue::prepare(std::size_t slot, std::size_t worker,
                            std::unique_lock<std::mutex>& lock) {
  // Given out under the lock, so that no part is prepared twice.
  const std::int64_t part = slots_[slot].given++;
  // The work touches its part of the slot's buffer alone, which the caller does not hold until all
  // parts are done.
  lock.unlock();
  std::exception_ptr failure;
  try {
    work_.prepare(slot, part, worker);
  } catch (...) {
    failure = std::current_exception();
  }
  lock.lock();
  Slot& mine = slots_[slot];
  ++mine.done;
  if (failure) {
    mine.failure = failure;
    mine.parts = mine.given;  // the rest is of no use
  }
  if (!mine.wanted && mine.is_idle()) {
    mine = {};
    work_or_stopped_.notify_all();
  }
  if (mine.is_idle()) ready_.notify_one();
}

void PrefetchQueue::run(std::size_t worker) {
  std::unique_lock lock(mutex_);
  // A range that is being prepared comes before a new one: the owner waits for the first one.
  while (!stopped_) {
    if (const auto slot = slot_with_work()) {
      prepare(*slot, worker, lock);
      continue;
    }
    Entry* const entry = entry_to_begin();
    const auto slot = free_slot();
    if (entry != nullptr && slot) {
      begin(*entry, *slot, lock);
      continue;
    }
    work_or_stopped_.wait(lock);
  }
}

std::vector<int> read_cpu_list(std::string_view text) {
  std::vector<int> cpus;
  const char* begin = text.data();
  const char* const end = begin + text.size();
  const auto require = [](bool fact) {
    if (fact) return;
    throw std::invalid_argument("is no list of CPUs below " + std::to_string(CPU_SETSIZE) +
                                ", such as \"0-3,8\"");
  };
  const auto number = [&] {
    int cpu = -1;
    const auto [next, error] = std::from_chars(begin, end, cpu);
    require(error == std::errc{} && cpu >= 0 && cpu < CPU_SETSIZE);
    begin = next;
    return cpu;
  };
  while (begin != end) {
    const int first = number();
    int last = first;
    if (begin != end && *begin == '-') {
      ++begin;
      last = number();
    }
    for (int cpu = first; cpu <= last; ++cpu) cpus.push_back(cpu);
    require(first <= last);
    if (begin == end) break;
    require(*begin == ',' && begin + 1 != end);
    ++begin;
  }
  return cpus;
}

}  // namespace rondo::train
