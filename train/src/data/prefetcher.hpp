#pragma once

#include <condition_variable>
#include <cstddef>
#include <exception>
#include <functional>
#include <mutex>
#include <optional>
#include <thread>

#include <rondo/train/loader.hpp>

namespace rondo::train {

// A thread that prepares one range at a time in one of two buffers, while its owner reads the
// other one. Knows nothing of what a buffer is but its number, 0 or 1.
class Prefetcher {
 public:
  // Called on the prefetcher's thread.
  using Prepare = std::function<void(const SampleRange& range, std::size_t buffer)>;

  explicit Prefetcher(Prepare prepare);
  Prefetcher(const Prefetcher&) = delete;
  Prefetcher& operator=(const Prefetcher&) = delete;
  ~Prefetcher();

  // Has `range` prepared in the buffer that the owner does not hold; returns at once. Of several
  // announcements the last one counts.
  void announce(const SampleRange& range);

  // Waits for `range`, announced or not, and returns its buffer; the owner holds it until the next
  // take(). Throws what preparing it threw.
  std::size_t take(const SampleRange& range);

 private:
  void run();
  [[nodiscard]] bool under_way(const SampleRange& range) const;

  Prepare prepare_;
  std::mutex mutex_;
  std::condition_variable wanted_or_stopped_;
  std::condition_variable prepared_;
  std::optional<SampleRange> wanted_;   // not begun yet
  std::optional<SampleRange> current_;  // begun, perhaps done
  bool working_ = false;                // on current_
  std::exception_ptr failure_;          // of current_
  std::size_t buffer_ = 0;              // of current_
  bool stopped_ = false;
  std::thread thread_;
};

}  // namespace rondo::train
