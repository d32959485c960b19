// A link's two numbers, from two sizes of an allgather over two ranks: that takes
// alpha + bytes / 2 / bandwidth, where `bytes` are those that each rank has in the end.
//
// And what computing beside others costs. This cost cannot be counted: ranks with a core each share
// caches, memory bandwidth and the processor's power, and two cores may be threads of one. So a
// step is timed on rank 0 alone and on all ranks at once. The two are measured in turns, because
// the speed of a machine changes while they last.

#include "plan/world_costs.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <memory_resource>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include <unistd.h>

#include <rondo/train/scaling.hpp>
#include <rondo/transport/communicator.hpp>
#include <rondo/transport/request.hpp>
#include <rondo/transport/world.hpp>

#include "benchmark/model_benchmark.hpp"

namespace rondo::train {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t few_elements = 2;
constexpr std::size_t many_elements = std::size_t{256} * 1024;

// Both ranks enter it together.
double allgather_seconds(transport::Communicator& pair, std::span<float> all, std::size_t times) {
  const std::span<float> both = all;
  const std::size_t half = all.size() / 2;
  const std::span<float> own = both.subspan(half * static_cast<std::size_t>(pair.rank()), half);
  std::vector<double> seconds;
  for (std::size_t i = 0; i <= times; ++i) {
    pair.barrier().wait();
    const Clock::time_point begin = Clock::now();
    pair.allgather<float>(own, both).wait();
    seconds.push_back(std::chrono::duration<double>(Clock::now() - begin).count());
  }
  seconds.erase(seconds.begin());  // maps memory, and connects
  std::ranges::nth_element(seconds, seconds.begin() + static_cast<std::ptrdiff_t>(times / 2));
  return seconds[times / 2];
}

LinkCost measure_link(transport::Communicator& pair, std::pmr::memory_resource* arena) {
  std::pmr::vector<float> memory(many_elements, 0.0F, arena);
  const double alpha = allgather_seconds(pair, std::span(memory).first(few_elements), 31);
  const double both = allgather_seconds(pair, memory, 7);
  // Noise may have made the short ones the longer ones.
  const double moving = std::max(both - alpha, both / 10.0);
  return {.alpha_seconds = alpha,
          .bandwidth = static_cast<double>(many_elements * sizeof(float)) / 2.0 / moving};
}

// The first rank behind rank 0 that is, or is not, on its node; 0: there is none.
int first_other(std::span<const transport::RankInfo> ranks, bool on_its_node) {
  for (std::size_t rank = 1; rank < ranks.size(); ++rank) {
    if ((ranks[rank].node == ranks.front().node) == on_its_node) return static_cast<int>(rank);
  }
  return 0;
}

// Rank 0 and `other` measure, and all others stay out.
std::optional<LinkCost> measure_pair(transport::World& world, int other) {
  if (other == 0) return std::nullopt;
  const bool takes_part = world.rank() == 0 || world.rank() == other;
  std::optional<transport::Communicator> pair =
      world.communicator().split(takes_part ? std::optional(0) : std::nullopt);
  if (!pair) return LinkCost{};
  return measure_link(*pair, &world.arena());
}

// Nodes may be fake.
std::int64_t ranks_on_host(std::span<const transport::RankInfo> ranks, const std::string& host) {
  return std::ranges::count(ranks, host, &transport::RankInfo::host);
}

constexpr double most_step_flops = 1e10;
constexpr int turns = 3;
constexpr std::chrono::milliseconds turn_budget{80};

// So many of the samples that a step keeps within its flops: forward and the two gradients.
std::int64_t samples_of_step(const Model& model, std::int64_t samples) {
  double flops = 0.0;
  for (const LocalWork& work : unsplit_work(model, 1)) flops += 3.0 * pass_flops(work);
  const auto most = static_cast<std::int64_t>(most_step_flops / std::max(flops, 1.0));
  return std::clamp<std::int64_t>(samples, 1, std::max<std::int64_t>(most, 1));
}

// Steps that were run, and what they took.
struct Timed {
  double seconds = 0.0;
  int steps = 0;

  void run(BenchmarkStep& step, std::chrono::duration<double> budget) {
    const Clock::time_point begin = Clock::now();
    const double before = seconds;
    do {
      step.run();
      ++steps;
      seconds = before + std::chrono::duration<double>(Clock::now() - begin).count();
    } while (seconds - before < budget.count());
  }
  [[nodiscard]] double mean() const { return seconds / steps; }
};

// Waits asleep, whatever WorldOptions::waiting says: rank 0 should have the machine to itself. It
// may take longer than any message may, so there is no deadline.
void wait_asleep(transport::Request request) {
  while (!request.test()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

void run_alone(transport::World& world, BenchmarkStep& step, Timed& timed) {
  std::array done{0};
  world.communicator().barrier().wait();
  if (world.rank() == 0) timed.run(step, turn_budget);
  wait_asleep(world.communicator().broadcast(std::span<int>(done), 0));
}

// Threads that share a core take turns on it, for which the budget must be long enough.
void run_together(transport::World& world, BenchmarkStep& step, int threads, Timed& timed) {
  world.communicator().barrier().wait();
  timed.run(step, ranks_per_core(world, threads) * turn_budget);
  wait_asleep(world.communicator().barrier());
}

}  // namespace

WorldCosts measure_world(transport::World& world) {
  const std::span<const transport::RankInfo> ranks = world.ranks();
  const std::optional<LinkCost> node = measure_pair(world, first_other(ranks, true));
  const std::optional<LinkCost> fabric = measure_pair(world, first_other(ranks, false));
  WorldCosts costs;
  costs.node = node ? *node : fabric.value_or(LinkCost{});
  costs.fabric = fabric ? *fabric : costs.node;
  return costs;
}

// Nodes are counted from 0 on. With as many blocks of equal size as there are nodes, and each on
// one node, no node can have two of them.
int ranks_per_node(std::span<const transport::RankInfo> ranks) {
  const auto nodes =
      static_cast<std::size_t>(std::ranges::max(ranks, {}, &transport::RankInfo::node).node) + 1;
  if (ranks.size() % nodes != 0) return 1;
  const std::size_t block = ranks.size() / nodes;
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    if (ranks[rank].node != ranks[rank / block * block].node) return 1;
  }
  return static_cast<int>(block);
}

// A rank that is bound sees its own cores only, so the host is asked.
double ranks_per_core(const transport::World& world, int threads) {
  const std::span<const transport::RankInfo> ranks = world.ranks();
  const auto here = static_cast<double>(ranks_on_host(ranks, ranks.front().host));
  const long cores = std::max(1L, ::sysconf(_SC_NPROCESSORS_ONLN));
  return std::max(1.0, here * threads / static_cast<double>(cores));
}

bool has_neighbours(const transport::World& world) {
  const std::span<const transport::RankInfo> ranks = world.ranks();
  return std::ranges::any_of(
      ranks, [&](const transport::RankInfo& rank) { return ranks_on_host(ranks, rank.host) > 1; });
}

std::unique_ptr<BenchmarkStep> make_slowdown_step(const Model& model, std::int64_t samples,
                                                  int threads, tensor::DataType type) {
  auto step =
      std::make_unique<BenchmarkStep>(model, samples_of_step(model, samples), threads, type);
  for (int warm_up = 0; warm_up < 2; ++warm_up) step->run();
  return step;
}

double measure_slowdown(transport::World& world, BenchmarkStep& step, int threads) {
  if (!has_neighbours(world)) return 1.0;
  Timed alone;
  Timed together;
  for (int turn = 0; turn < turns; ++turn) {
    run_alone(world, step, alone);
    run_together(world, step, threads, together);
  }
  std::array slowest{together.mean()};
  world.communicator().allreduce(std::span<double>(slowest), transport::ReduceOp::max).wait();
  std::array slowdown{world.rank() == 0 ? std::max(1.0, slowest[0] / alone.mean()) : 0.0};
  world.communicator().broadcast(std::span<double>(slowdown), 0).wait();
  return slowdown[0];
}

}  // namespace rondo::train
