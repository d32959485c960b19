#include "bench/allreduce_bench.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <functional>
#include <memory_resource>
#include <span>

#include <rondo/transport/communicator.hpp>
#include <rondo/transport/world.hpp>

#include "bench/one_pass.hpp"
#include "bench/shared_block.hpp"

namespace rondo::tools {
namespace {

using Clock = std::chrono::steady_clock;
using Microseconds = std::chrono::duration<double, std::micro>;

constexpr int rounds_in_turn = 5;

int iterations_for(std::size_t bytes, const AllreduceBench& bench) {
  if (bench.iterations > 0) return bench.iterations;
  constexpr std::size_t kibibyte = 1024;
  if (bytes < 64 * kibibyte) return 2000;
  return bytes < 4 * kibibyte * kibibyte ? 300 : 30;
}

// Small integers: their sums are exact in every order.
float value_of(int rank, std::size_t element) {
  return static_cast<float>(rank + 1) + static_cast<float>(element & 7U);
}

void rewrite(std::span<float> data, int rank) {
  for (std::size_t i = 0; i < data.size(); ++i) data[i] = value_of(rank, i);
}

std::int64_t count_wrong(std::span<const float> data, int ranks) {
  const auto count = static_cast<float>(ranks);
  const float of_ranks = count * (count + 1.0F) / 2.0F;
  std::int64_t wrong = 0;
  for (std::size_t i = 0; i < data.size(); ++i) {
    const float expected = of_ranks + count * static_cast<float>(i & 7U);
    // Not `!=`: a NaN is wrong, too.
    if (!(data[i] == expected)) ++wrong;
  }
  return wrong;
}

// Takes the measurements of one size in one kind of memory.
class Measurement {
 public:
  Measurement(transport::World& world, SharedBlock& shared, std::span<float> data)
      : world_(world), shared_(shared), data_(data) {
    for (int rank = 0; rank < world.size(); ++rank) buffers_.push_back(shared.buffer(rank));
    const auto ranks = static_cast<std::size_t>(world.size());
    const auto rank = static_cast<std::size_t>(world.rank());
    // Cutting a few cache lines costs more than it saves.
    const bool cut = data.size() >= 64 * ranks;
    first_ = cut ? data.size() * rank / ranks : 0;
    last_ = cut ? data.size() * (rank + 1) / ranks : (rank == 0 ? data.size() : 0);
  }

  void allreduce(int iterations) {
    run(iterations, data_, [this] { world_.communicator().allreduce(data_).wait(); }, times_);
    wrong_ += count_wrong(data_, world_.size());
  }

  void limit(int iterations) {
    const std::span<float> mine(buffers_[static_cast<std::size_t>(world_.rank())], data_.size());
    run(
        iterations, mine,
        [this] {
          shared_.barrier();
          one_pass_(buffers_.data(), world_.size(), first_, last_);
          shared_.barrier();
        },
        limits_);
    wrong_ += count_wrong(mine, world_.size());
  }

  [[nodiscard]] const std::vector<double>& times() const noexcept { return times_; }
  [[nodiscard]] const std::vector<double>& limits() const noexcept { return limits_; }

  /// Collective.
  [[nodiscard]] std::int64_t wrong() {
    std::array<std::int64_t, 1> sum = {wrong_};
    world_.communicator().allreduce(std::span<std::int64_t>(sum)).wait();
    return sum[0];
  }

 private:
  template <typename Operation>
  void run(int iterations, std::span<float> data, Operation operation, std::vector<double>& times) {
    const int warm_up = iterations / 10 + 2;
    const auto mine = shared_.measurements(world_.rank());
    for (int i = -warm_up; i < iterations; ++i) {
      rewrite(data, world_.rank());
      shared_.barrier();
      const auto start = Clock::now();
      operation();
      const Microseconds time = Clock::now() - start;
      if (i >= 0) mine[static_cast<std::size_t>(i)] = time.count();
    }
    shared_.barrier();
    append_slowest(iterations, times);
    shared_.barrier();
  }

  // Of each iteration, the time of the slowest rank.
  void append_slowest(int iterations, std::vector<double>& times) const {
    for (std::size_t i = 0; i < static_cast<std::size_t>(iterations); ++i) {
      double slowest = 0.0;
      for (int rank = 0; rank < world_.size(); ++rank) {
        slowest = std::max(slowest, shared_.measurements(rank)[i]);
      }
      times.push_back(slowest);
    }
  }

  transport::World& world_;
  SharedBlock& shared_;
  std::span<float> data_;
  std::vector<float*> buffers_ = {};
  OnePass one_pass_ = one_pass_for_this_processor();
  std::size_t first_ = 0;
  std::size_t last_ = 0;
  std::vector<double> times_ = {};
  std::vector<double> limits_ = {};
  std::int64_t wrong_ = 0;
};

AllreduceRow measure(transport::World& world, SharedBlock& shared, const AllreduceBench& bench,
                     std::size_t bytes, BenchMemory memory) {
  std::pmr::memory_resource* resource = std::pmr::new_delete_resource();
  if (memory == BenchMemory::arena) resource = &world.arena();
  std::pmr::vector<float> data(bytes / sizeof(float), 0.0F, resource);

  Measurement measurement(world, shared, data);
  const int iterations = iterations_for(bytes, bench);
  if (bench.limit) {
    const int per_round = std::max(1, iterations / rounds_in_turn);
    for (int round = 0; round < rounds_in_turn; ++round) {
      measurement.allreduce(per_round);
      measurement.limit(per_round);
    }
  } else {
    measurement.allreduce(iterations);
  }

  AllreduceRow row;
  row.bytes = bytes;
  row.ranks = world.size();
  row.memory = memory == BenchMemory::arena ? "arena" : "private";
  row.time = summarize(measurement.times());
  row.wrong = measurement.wrong();
  if (bench.limit) row.limit_us = summarize(measurement.limits()).median_us;
  return row;
}

}  // namespace

double AllreduceRow::algorithm_gb_per_second() const noexcept {
  return static_cast<double>(bytes) / time.median_us / 1e3;
}

double AllreduceRow::bus_gb_per_second() const noexcept {
  return algorithm_gb_per_second() * 2.0 * (ranks - 1) / ranks;
}

double AllreduceRow::percent() const noexcept {
  return limit_us ? 100.0 * *limit_us / time.median_us : 0.0;
}

std::vector<AllreduceRow> measure_allreduce(transport::World& world, const AllreduceBench& bench) {
  int most = 0;
  for (const std::size_t bytes : bench.sizes) most = std::max(most, iterations_for(bytes, bench));
  const std::size_t limit_bytes = bench.limit ? std::ranges::max(bench.sizes) : 0;
  SharedBlock shared(world, limit_bytes, static_cast<std::size_t>(most));
  std::vector<AllreduceRow> rows;
  for (const std::size_t bytes : bench.sizes) {
    for (const BenchMemory memory : bench.memories) {
      rows.push_back(measure(world, shared, bench, bytes, memory));
    }
  }
  return rows;
}

}  // namespace rondo::tools
