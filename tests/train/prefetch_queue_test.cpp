// The threads behind the Loader: who writes which buffer, in which order, and what happens to their
// errors.

#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <future>
#include <stdexcept>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "data/prefetch_queue.hpp"

namespace rondo::train::prefetch_queue_test {
namespace {

// The range whose step is `step`.
SampleRange range(std::int64_t step) { return {.epoch = 0, .step = step, .first = 0, .last = 1}; }

// A queue whose ranges have `parts` parts; each is done by `prepare(range, buffer)`.
class Queue {
 public:
  using Prepare = std::function<void(const SampleRange& range, std::size_t buffer)>;

  Queue(PrefetchQueue::Options options, std::int64_t parts, Prepare prepare)
      : ranges_(std::max<std::size_t>(options.ahead, 1) + 1),
        queue_({.begin =
                    [this, parts](const SampleRange& wanted, std::size_t buffer) {
                      ranges_.at(buffer) = wanted;
                      return parts;
                    },
                .prepare = [this, run = std::move(prepare)](
                               std::size_t buffer, std::int64_t,
                               std::size_t) { run(ranges_.at(buffer), buffer); }},
               options) {}

  void announce(std::int64_t step) { queue_.announce(range(step)); }
  std::size_t take(std::int64_t step) { return queue_.take(range(step)); }

 private:
  std::vector<SampleRange> ranges_;
  PrefetchQueue queue_;
};

// One worker and one range ahead; several workers and ranges.
class PrefetchQueueTest : public testing::TestWithParam<int> {
 protected:
  [[nodiscard]] static PrefetchQueue::Options options() {
    const auto count = static_cast<std::size_t>(GetParam());
    return {.ahead = count, .workers = count};
  }
};

TEST_P(PrefetchQueueTest, GivesTheBufferInWhichAllPartsWerePrepared) {
  std::array<std::atomic<std::int64_t>, 8> sums = {};
  Queue queue(options(), 5,
              [&](const SampleRange& wanted, std::size_t i) { sums.at(i) += wanted.step; });

  for (std::int64_t step = 1; step < 100; ++step) {
    for (std::int64_t next = step; next < step + GetParam() && step % 7 != 0; ++next) {
      queue.announce(next);
    }
    const std::size_t buffer = queue.take(step);
    EXPECT_EQ(sums.at(buffer).exchange(0), 5 * step);
  }
}

TEST_P(PrefetchQueueTest, DoesNotWriteTheBufferThatItsOwnerHolds) {
  std::array<std::atomic<std::int64_t>, 8> buffers = {};
  Queue queue(options(), 3,
              [&](const SampleRange& wanted, std::size_t i) { buffers.at(i) = wanted.step; });

  for (std::int64_t step = 1; step < 100; ++step) {
    const std::size_t held = queue.take(step);
    for (std::int64_t other = 1; other < 7; ++other) queue.announce(1000 * other + step);
    queue.announce(step + 1);
    EXPECT_EQ(buffers.at(held), step);
  }
}

TEST_P(PrefetchQueueTest, PreparesAnAnnouncedRangeOnce) {
  std::atomic<int> calls = 0;
  Queue queue(options(), 2, [&](const SampleRange&, std::size_t) { ++calls; });

  for (std::int64_t step = 0; step < 50; ++step) {
    queue.announce(step);
    queue.announce(step);
    static_cast<void>(queue.take(step));
  }

  EXPECT_EQ(calls, 100);
}

TEST_P(PrefetchQueueTest, PreparesWhatWasAnnouncedBeforeAnybodyTakesIt) {
  std::promise<std::int64_t> prepared;
  Queue queue(options(), 1,
              [&](const SampleRange& wanted, std::size_t) { prepared.set_value(wanted.step); });

  queue.announce(3);

  std::future<std::int64_t> step = prepared.get_future();
  ASSERT_EQ(step.wait_for(std::chrono::seconds(30)), std::future_status::ready);
  EXPECT_EQ(step.get(), 3);
  static_cast<void>(queue.take(3));  // and not once more
}

TEST_P(PrefetchQueueTest, ThrowsWhatPreparingThrew) {
  Queue queue(options(), 4, [](const SampleRange& wanted, std::size_t) {
    if (wanted.step == 1) throw std::runtime_error("bad image");
  });

  queue.announce(1);
  EXPECT_THROW(static_cast<void>(queue.take(1)), std::runtime_error);
  EXPECT_THROW(static_cast<void>(queue.take(1)), std::runtime_error);
  EXPECT_NO_THROW(static_cast<void>(queue.take(2)));
}

TEST_P(PrefetchQueueTest, ForgetsTheFailureOfARangeThatNobodyTakes) {
  Queue queue(options(), 4, [](const SampleRange& wanted, std::size_t) {
    if (wanted.step == 1) throw std::runtime_error("bad image");
  });

  queue.announce(1);

  EXPECT_NO_THROW(static_cast<void>(queue.take(2)));
}

TEST_P(PrefetchQueueTest, ThrowsWhatBeginningThrew) {
  PrefetchQueue queue({.begin = [](const SampleRange&, std::size_t) -> std::int64_t {
                         throw std::runtime_error("no such epoch");
                       },
                       .prepare = [](std::size_t, std::int64_t, std::size_t) {}},
                      options());

  EXPECT_THROW(static_cast<void>(queue.take(range(1))), std::runtime_error);
}

INSTANTIATE_TEST_SUITE_P(Workers, PrefetchQueueTest, testing::Values(1, 2, 4),
                         testing::PrintToStringParamName());

TEST(PrefetchQueueCpusTest, WorkersRunOnTheCpusThatAreGiven) {
  cpu_set_t mine;
  sched_getaffinity(0, sizeof mine, &mine);
  int cpu = 0;
  while (!CPU_ISSET(static_cast<std::size_t>(cpu), &mine)) ++cpu;
  cpu_set_t seen;
  Queue queue({.cpus = {cpu}}, 1, [&](const SampleRange&, std::size_t) {
    pthread_getaffinity_np(pthread_self(), sizeof seen, &seen);
  });

  static_cast<void>(queue.take(0));

  EXPECT_EQ(CPU_COUNT(&seen), 1);
  EXPECT_TRUE(CPU_ISSET(static_cast<std::size_t>(cpu), &seen));
  cpu_set_t after;
  sched_getaffinity(0, sizeof after, &after);
  EXPECT_TRUE(CPU_EQUAL(&after, &mine)) << "the owner keeps its own";
}

TEST(PrefetchQueueCpusTest, ReadsListsOfCpus) {
  EXPECT_THAT(read_cpu_list(""), testing::IsEmpty());
  EXPECT_THAT(read_cpu_list("3"), testing::ElementsAre(3));
  EXPECT_THAT(read_cpu_list("0-2,8"), testing::ElementsAre(0, 1, 2, 8));
  for (const char* const wrong : {"a", "1,", ",1", "3-1", "1-", "-1", "1 2", "99999"}) {
    EXPECT_THROW(static_cast<void>(read_cpu_list(wrong)), std::invalid_argument) << wrong;
  }
}

}  // namespace
}  // namespace rondo::train::prefetch_queue_test
