#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <mutex>
#include <optional>
#include <string_view>
#include <thread>
#include <vector>

#include <rondo/train/loader.hpp>

namespace rondo::train {

// Ranges that are prepared ahead, where nothing else is said. A copy takes the same time for each
// image, a decoded image does not: some ranges ahead level that out.
inline constexpr std::size_t copied_ahead = 1;
inline constexpr std::size_t decoded_ahead = 3;

// Threads that prepare announced ranges, in the order of announcement, while the owner reads the
// range that it took last. Knows nothing of what is prepared but that a range has parts, which
// several threads may prepare at once, and that it lies in one of `ahead` + 1 buffers.
class PrefetchQueue {
 public:
  struct Work {
    // Begins a range in `buffer`; returns of how many parts it consists. Different ranges are
    // begun one after another.
    std::function<std::int64_t(const SampleRange& range, std::size_t buffer)> begin = {};
    // Prepares part `part` of the range in `buffer`, on thread `worker`.
    std::function<void(std::size_t buffer, std::int64_t part, std::size_t worker)> prepare = {};
  };
  struct Options {
    std::size_t ahead = 1;  // ranges that are prepared besides the one that the owner holds
    std::size_t workers = 1;
    std::vector<int> cpus = {};  // of the workers; empty: those of this thread
  };

  // Throws std::invalid_argument when the workers cannot run on these CPUs.
  PrefetchQueue(Work work, Options options);
  PrefetchQueue(const PrefetchQueue&) = delete;
  PrefetchQueue& operator=(const PrefetchQueue&) = delete;
  ~PrefetchQueue();

  // Has `range` prepared after those announced before; returns at once. Only the last `ahead`
  // announcements count.
  void announce(const SampleRange& range);

  // Waits for `range`, announced or not, and returns its buffer; the owner holds it until the next
  // take(). Announcements before it, or all if it was not announced, are forgotten. Throws what
  // preparing it threw.
  std::size_t take(const SampleRange& range);

 private:
  // A buffer and what becomes of it.
  struct Slot {
    bool used = false;       // holds a range, or is still being written
    bool wanted = false;     // by an entry, or by the owner
    bool beginning = false;  // `parts` is not known yet
    std::int64_t parts = 0;
    std::int64_t given = 0;  // parts that a thread has begun
    std::int64_t done = 0;
    std::exception_ptr failure = nullptr;

    [[nodiscard]] bool has_work() const noexcept { return used && wanted && given < parts; }
    [[nodiscard]] bool is_idle() const noexcept { return !beginning && done == given; }
    [[nodiscard]] bool is_ready() const noexcept { return !beginning && done == parts; }
  };
  // An announced range, and its buffer once it has one.
  struct Entry {
    SampleRange range = {};
    std::optional<std::size_t> slot = {};
  };

  void run(std::size_t worker);
  [[nodiscard]] std::size_t find(const SampleRange& range) const;
  void forget_first(std::size_t count);
  void release(std::size_t slot);
  [[nodiscard]] std::optional<std::size_t> slot_with_work() const;
  [[nodiscard]] Entry* entry_to_begin();
  [[nodiscard]] std::optional<std::size_t> free_slot() const;
  void begin(Entry& entry, std::size_t slot, std::unique_lock<std::mutex>& lock);
  void prepare(std::size_t slot, std::size_t worker, std::unique_lock<std::mutex>& lock);
  void stop();

  Work work_;
  std::size_t ahead_;
  std::mutex mutex_;
  std::condition_variable work_or_stopped_;
  std::condition_variable ready_;
  std::vector<Slot> slots_;
  std::vector<Entry> entries_;  // the first one is the next to be taken
  std::optional<std::size_t> held_;
  bool beginning_ = false;  // some slot
  bool stopped_ = false;
  std::vector<std::thread> workers_;
};

// The CPUs of a list such as "0-3,8", as Linux writes them. Throws std::invalid_argument.
[[nodiscard]] std::vector<int> read_cpu_list(std::string_view text);

}  // namespace rondo::train
