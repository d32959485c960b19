// A link's two numbers, from two sizes of an allgather over two ranks: that takes
// alpha + bytes / 2 / bandwidth, where `bytes` are those that each rank has in the end.

#include "plan/world_costs.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <memory_resource>
#include <optional>
#include <span>
#include <vector>

#include <unistd.h>

#include <rondo/transport/communicator.hpp>
#include <rondo/transport/world.hpp>

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
  const double moving = std::max(both - alpha, 1e-9);
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

// Nodes may be fake. A rank that is bound sees its own cores only, so the host is asked.
double ranks_per_core(std::span<const transport::RankInfo> ranks, int threads) {
  const auto here = std::ranges::count(ranks, ranks.front().host, &transport::RankInfo::host);
  const long cores = std::max(1L, ::sysconf(_SC_NPROCESSORS_ONLN));
  return std::max(1.0, static_cast<double>(here) * threads / static_cast<double>(cores));
}

}  // namespace

WorldCosts measure_world(transport::World& world, int threads) {
  const std::span<const transport::RankInfo> ranks = world.ranks();
  const std::optional<LinkCost> node = measure_pair(world, first_other(ranks, true));
  const std::optional<LinkCost> fabric = measure_pair(world, first_other(ranks, false));
  WorldCosts costs{.ranks_per_core = ranks_per_core(ranks, threads)};
  costs.node = node ? *node : fabric.value_or(LinkCost{});
  costs.fabric = fabric ? *fabric : costs.node;
  return costs;
}

}  // namespace rondo::train
