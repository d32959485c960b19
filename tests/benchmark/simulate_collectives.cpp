// Collectives of many ranks, simulated (see support/simulated_ranks.hpp).
//
//   simulate-collectives check [RANKS...]
//     Runs every collective for 1 to 512 ranks and for 1,024, 2,048 and 4,096 (or for those given):
//     every element once, and each rank sends what the closed form says.
//
//   simulate-collectives predict RANKS NODES [NAME=VALUE...]
//     Predicts the time of an allreduce by each algorithm, and which is the fastest. The costs are
//     measured ones; they are printed, and each can be replaced:
//       latency-us, gbs             between nodes: one way of a short message; a node's bandwidth
//       node-latency-us, node-gbs   inside a node: the same between two ranks
//       memory-gbs                  of a node, for reading and writing
//       reduce-gbs                  received bytes that a rank adds to its own
//       segment-kib                 the longest message
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <limits>
#include <map>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "collective/algorithms.hpp"
#include "collective/hierarchical/hierarchical.hpp"
#include "support/simulated_collectives.hpp"
#include "support/simulated_ranks.hpp"

namespace {

using namespace rondo;
using test::SimulatedRanks;
using test::SimulatedTraffic;
using transport::AllreduceAlgorithm;
using transport::Posted;

int check(const std::vector<std::size_t>& sizes) {
  for (const test::SimulatedCollective& collective : test::simulated_collectives()) {
    SimulatedTraffic sum;
    for (const std::size_t ranks : sizes) {
      try {
        const SimulatedTraffic traffic = collective.check(ranks);
        sum.operations += traffic.operations;
        sum.messages += traffic.messages;
        sum.bytes += traffic.bytes;
      } catch (const std::exception& error) {
        std::printf("%s of %zu ranks: %s\n", collective.name.c_str(), ranks, error.what());
        return 1;
      }
    }
    std::printf(
        "%-32s right for %zu numbers of ranks: %llu operations, %llu messages, %llu bytes\n",
        collective.name.c_str(), sizes.size(), static_cast<unsigned long long>(sum.operations),
        static_cast<unsigned long long>(sum.messages), static_cast<unsigned long long>(sum.bytes));
    std::fflush(stdout);
  }
  return 0;
}

// --- Prediction ---

// Measured on two cores of an EPYC (Zen 5): between nodes, TCP of two network namespaces; inside a
// node, the link over shared memory. docs/results.md has the runs.
std::map<std::string, double> measured_costs() {
  return {{"latency-us", 8.0},  {"gbs", 3.5},         {"node-latency-us", 0.13}, {"node-gbs", 40.0},
          {"memory-gbs", 60.0}, {"reduce-gbs", 40.0}, {"segment-kib", 512.0}};
}

struct Machine {
  std::size_t ranks = 0;
  std::size_t nodes = 0;
  std::map<std::string, double> costs = {};

  [[nodiscard]] std::size_t ranks_per_node() const { return ranks / nodes; }
  [[nodiscard]] double seconds_per_byte(const char* name) const { return 1e-9 / costs.at(name); }
  [[nodiscard]] SimulatedRanks::Options options() const {
    SimulatedRanks::Options options;
    options.costs = {.ranks_per_node = ranks_per_node(),
                     .between_nodes = {.latency = costs.at("latency-us") * 1e-6,
                                       .per_byte = seconds_per_byte("gbs")},
                     .inside_node = {.latency = costs.at("node-latency-us") * 1e-6,
                                     .per_byte = seconds_per_byte("node-gbs")},
                     // A message is read, written and read again.
                     .memory_per_byte = 3.0 * seconds_per_byte("memory-gbs"),
                     .per_reduced_byte = seconds_per_byte("reduce-gbs")};
    options.moves_data = false;
    options.segment_bytes = static_cast<std::size_t>(costs.at("segment-kib") * 1024.0);
    return options;
  }
};

// The ranks' data is one and the same array: only the time matters.
double simulate(SimulatedRanks& ranks, AllreduceAlgorithm algorithm, std::size_t bytes) {
  static std::vector<std::byte> data;
  data.resize(std::max(data.size(), bytes));
  const std::vector<Posted> all(
      ranks.size(), test::posted_bytes(transport::shm::Collective::allreduce, data, bytes, bytes));
  const auto [runs, reduced] = test::simulated_allreduce(algorithm);
  const std::vector<double> ends = ranks.run(*runs, all, reduced);
  return *std::ranges::max_element(ends);
}

class Predictions {
 public:
  explicit Predictions(const Machine& machine)
      : machine_(machine),
        flat_(machine.ranks, machine.options()),
        leaders_(machine.nodes, options_of(1)),
        owners_(machine.ranks, options_of(machine.ranks_per_node())) {}

  double flat(AllreduceAlgorithm algorithm, std::size_t bytes) {
    return simulate(flat_, algorithm, bytes);
  }
  // Doubling: the leaders of the nodes exchange all; else every rank exchanges its shard. The work
  // inside the nodes for one block takes place during the exchange of another block.
  double hierarchical(AllreduceAlgorithm algorithm, std::size_t bytes) {
    const bool is_short = algorithm == AllreduceAlgorithm::doubling;
    const std::size_t shards = is_short ? 1 : machine_.ranks_per_node();
    const transport::HierarchyPlan plan(bytes, shards, machine_.nodes);
    const std::size_t block = plan.block(0).size();
    std::size_t longest = 0;
    for (std::size_t rank = 0; rank < shards; ++rank) {
      longest = std::max(longest, plan.shard(0, rank).size());
    }
    const double exchange =
        is_short ? simulate(leaders_, algorithm, block) : simulate(owners_, algorithm, longest);
    const double node = node_seconds(block);
    const auto blocks = static_cast<double>(plan.blocks());
    return node + exchange + (blocks - 1.0) * std::max(node, exchange);
  }

 private:
  [[nodiscard]] SimulatedRanks::Options options_of(std::size_t groups) const {
    SimulatedRanks::Options options = machine_.options();
    if (groups == 1) options.costs.ranks_per_node = 1;
    options.groups = groups;
    return options;
  }
  // Each rank's data is read once and each shard written once; then all shards are copied to all.
  [[nodiscard]] double node_seconds(std::size_t bytes) const {
    const auto ranks = static_cast<double>(machine_.ranks_per_node());
    if (ranks < 2.0) return 0.0;
    const double moved = (ranks + 1.0 + 2.0 * ranks) * static_cast<double>(bytes);
    constexpr double synchronisations = 4.0;
    return moved * machine_.seconds_per_byte("memory-gbs") +
           synchronisations * machine_.costs.at("node-latency-us") * 1e-6;
  }

  const Machine& machine_;
  SimulatedRanks flat_;
  SimulatedRanks leaders_;
  SimulatedRanks owners_;
};

int predict(const Machine& machine) {
  std::printf("# %zu ranks on %zu nodes", machine.ranks, machine.nodes);
  for (const auto& [name, value] : machine.costs) std::printf(", %s=%g", name.c_str(), value);
  std::printf("\n%10s", "bytes");
  for (const char* name : {"rd", "rh", "ring", "leaders rd", "shards rh", "shards ring"}) {
    std::printf(" %11s us", name);
  }
  std::printf("  fastest\n");
  constexpr std::size_t longest_of_doubling = std::size_t{1} << 18U;
  Predictions predictions(machine);
  for (std::size_t bytes = 4; bytes <= std::size_t{64} << 20U; bytes *= 4) {
    const bool is_short = bytes <= longest_of_doubling;
    using enum AllreduceAlgorithm;
    const auto if_short = [&](auto predict) {
      return is_short ? std::optional(predict()) : std::nullopt;
    };
    const std::vector<std::pair<const char*, std::optional<double>>> times = {
        {"rd", if_short([&] { return predictions.flat(doubling, bytes); })},
        {"rh", predictions.flat(halving, bytes)},
        {"ring", predictions.flat(ring, bytes)},
        {"leaders rd", if_short([&] { return predictions.hierarchical(doubling, bytes); })},
        {"shards rh", predictions.hierarchical(halving, bytes)},
        {"shards ring", predictions.hierarchical(ring, bytes)}};
    const char* fastest = nullptr;
    double least = std::numeric_limits<double>::infinity();
    std::printf("%10zu", bytes);
    for (const auto& [name, seconds] : times) {
      if (!seconds) {
        std::printf(" %14s", "-");
        continue;
      }
      std::printf(" %14.1f", *seconds * 1e6);
      if (*seconds >= least) continue;
      least = *seconds;
      fastest = name;
    }
    std::printf("  %s\n", fastest);
    std::fflush(stdout);
  }
  return 0;
}

std::size_t number(const std::string& word) {
  std::size_t used = 0;
  const unsigned long value = std::stoul(word, &used);
  if (used != word.size() || value == 0) throw std::invalid_argument(word + " is not a number");
  return value;
}

Machine machine_of(const std::vector<std::string>& words) {
  if (words.size() < 3) throw std::invalid_argument("write: predict RANKS NODES [NAME=VALUE...]");
  Machine machine{.ranks = number(words[1]), .nodes = number(words[2]), .costs = measured_costs()};
  if (machine.ranks % machine.nodes != 0) {
    throw std::invalid_argument("all nodes have as many ranks: " + words[1] +
                                " is no multiple of " + words[2]);
  }
  for (std::size_t i = 3; i < words.size(); ++i) {
    const std::size_t equal = words[i].find('=');
    const auto cost = machine.costs.find(words[i].substr(0, equal));
    if (equal == std::string::npos || cost == machine.costs.end()) {
      throw std::invalid_argument("there is no cost " + words[i]);
    }
    cost->second = std::stod(words[i].substr(equal + 1));
    if (!(cost->second > 0.0)) throw std::invalid_argument(words[i] + " is not above 0");
  }
  return machine;
}

std::vector<std::size_t> sizes_of(const std::vector<std::string>& words) {
  std::vector<std::size_t> sizes;
  for (std::size_t i = 1; i < words.size(); ++i) sizes.push_back(number(words[i]));
  if (!sizes.empty()) return sizes;
  for (std::size_t ranks = 1; ranks <= 512; ++ranks) sizes.push_back(ranks);
  sizes.insert(sizes.end(), {1024, 2048, 4096});
  return sizes;
}

int run(const std::vector<std::string>& words) {
  if (!words.empty() && words[0] == "check") return check(sizes_of(words));
  if (!words.empty() && words[0] == "predict") return predict(machine_of(words));
  std::fprintf(stderr,
               "write: simulate-collectives check [RANKS...]\n"
               "       simulate-collectives predict RANKS NODES [NAME=VALUE...]\n");
  return 2;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run({argv + 1, argv + argc});
  } catch (const std::exception& error) {
    std::fprintf(stderr, "simulate-collectives: %s\n", error.what());
    return 1;
  }
}
