// Costs of a message and of a collective: alpha seconds for each round of messages, and the bytes
// that a rank sends divided by the bandwidth. Ranks that share a node use another link than those
// that do not; a collective of both is one within nodes, then one between them on what is left.

#include "plan/message_costs.hpp"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <limits>
#include <numeric>
#include <span>

#include <rondo/train/plan.hpp>
#include <rondo/transport/allreduce_paths.hpp>

namespace rondo::train {
namespace {

using transport::AllreduceAlgorithm;

double message_seconds(double elements, const LinkCost& link) {
  return link.alpha_seconds + elements * element_bytes / link.bandwidth;
}

// ceil(log2 ranks)
int rounds_of(int ranks) {
  return static_cast<int>(std::bit_width(static_cast<unsigned>(ranks) - 1U));
}

// Seconds of an allgather or a reduce-scatter: ceil(log2 p) rounds, and (p - 1) / p of the
// elements. An allreduce is both, so callers count it twice.
double flat_seconds(double elements, int ranks, const LinkCost& link) {
  const double moved = elements * static_cast<double>(ranks - 1) / static_cast<double>(ranks);
  return link.alpha_seconds * rounds_of(ranks) + moved * element_bytes / link.bandwidth;
}

// How many ranks of the process group share a node. It has every stride-th rank. Where the ranks of
// a node are no multiple of the stride, its members lie on different nodes.
int ranks_on_node(ProcessGroup group, int ranks_per_node) {
  if (ranks_per_node % group.stride != 0) return 1;
  return std::gcd(group.size, ranks_per_node / group.stride);
}

// The link to other nodes of a rank that shares the port with so many, itself among them.
LinkCost fabric_of_one_of(int senders, const PlanOptions& options) {
  LinkCost link = options.fabric;
  if (options.port_bandwidth > 0.0) {
    link.bandwidth = std::min(link.bandwidth, options.port_bandwidth / senders);
  }
  return link;
}

bool is_on_one_node(ProcessGroup group, const PlanOptions& options) {
  return ranks_on_node(group, options.ranks_per_node) == group.size;
}

LinkCost link_within(ProcessGroup group, const PlanOptions& options) {
  return is_on_one_node(group, options) ? options.node
                                        : fabric_of_one_of(options.ranks_per_node, options);
}

}  // namespace

double port_bandwidth(const PlanOptions& options) {
  return fabric_of_one_of(options.ranks_per_node, options).bandwidth;
}

double collective_seconds(double elements, ProcessGroup group, const PlanOptions& options) {
  const int local = ranks_on_node(group, options.ranks_per_node);
  return flat_seconds(elements, local, options.node) +
         flat_seconds(elements / local, group.size / local,
                      fabric_of_one_of(options.ranks_per_node, options));
}

namespace {

// Inside a node ranks load from and store to each other's memory when all of them are there.
// `copied` elements are loaded and stored once: the bandwidth inside a node is that of copies.
double node_seconds(double copied, int ranks, const LinkCost& link) {
  return ranks == 1 ? 0.0 : link.alpha_seconds + copied * element_bytes / link.bandwidth;
}

double copied_by_allgather(double elements, int ranks) {
  return elements * static_cast<double>(ranks - 1) / static_cast<double>(ranks);
}

// A rank loads its share of all inputs, and stores it once.
double copied_by_reduce_scatter(double elements, int ranks) {
  return elements * (1.0 + 1.0 / static_cast<double>(ranks)) / 2.0;
}

// On one node a rank loads its share of all inputs and stores it into all outputs. Where nodes
// exchange shares between the two, it stores it once, and then copies all shares.
double allreduce_inside(double elements, int ranks, bool on_one_node, const LinkCost& link) {
  if (on_one_node) return node_seconds(elements, ranks, link) + node_seconds(0.0, ranks, link);
  return node_seconds(copied_by_reduce_scatter(elements, ranks), ranks, link) +
         node_seconds(elements, ranks, link);
}

// Messages to the neighbour, one behind the other, of ranks of which so many share a node's port:
// while one waits for its message, the others send.
MessageCost ring_cost(double elements, int ranks, int senders, const PlanOptions& options) {
  const double bytes = elements * element_bytes / ranks;
  const double alone = options.fabric.alpha_seconds + bytes / options.fabric.bandwidth;
  const double busy = bytes / fabric_of_one_of(senders, options).bandwidth;
  const double rounds = ranks - 1;
  return {.seconds = rounds * std::max(alone, busy), .busy = rounds * busy, .rounds = rounds};
}

// Bytes that are added while nothing is sent take so much of the time in which they are sent.
constexpr double adding = 0.25;

// Doubling and halving go log2 rounds among the largest power of two of ranks, and send two
// messages of all elements before and after them where the ranks are more.
// AlgorithmTable::for_ranks() of transport counts alike.
struct Folded {
  double positions = 1.0;
  double rounds = 0.0;
  double messages = 0.0;
};

Folded fold(int ranks) {
  const auto count = static_cast<unsigned>(ranks);
  return {.positions = static_cast<double>(std::bit_floor(count)),
          .rounds = static_cast<double>(std::bit_width(count) - 1),
          .messages = std::has_single_bit(count) ? 0.0 : 2.0};
}

// So many messages, in which all elements are sent `sent` times and added `added` times.
MessageCost folded_cost(double messages, double sent, double added, double elements,
                        const LinkCost& link) {
  const double once = elements * element_bytes / link.bandwidth;
  return {.seconds = messages * link.alpha_seconds + (sent + adding * added) * once,
          .busy = sent * once,
          .rounds = messages};
}

// All elements in every round, which are added before the next one begins.
MessageCost doubling_cost(double elements, int ranks, const LinkCost& link) {
  const Folded folded = fold(ranks);
  const double times = folded.rounds + folded.messages;
  return folded_cost(times, times, times, elements, link);
}

// Half of the elements, a quarter and so on, and the same back, which are not added.
MessageCost halving_cost(double elements, int ranks, const LinkCost& link) {
  const Folded folded = fold(ranks);
  const double halves = 1.0 - 1.0 / folded.positions;
  return folded_cost(2.0 * folded.rounds + folded.messages, 2.0 * halves + folded.messages,
                     halves + folded.messages, elements, link);
}

// Nothing hides the time of a single block, and each block passes one stage after the other.
double overlapped(double inside, double between, std::size_t blocks) {
  const double hidden = std::min(inside, between) * (1.0 - 1.0 / static_cast<double>(blocks));
  return inside + between - hidden;
}

// A half of a ring allreduce, of which a rank of `local` on a node copies so many elements there.
MessageCost half_cost(double elements, double copied, int local, ProcessGroup group,
                      const PlanOptions& options) {
  MessageCost cost =
      ring_cost(elements / local, group.size / local, options.ranks_per_node, options);
  cost.seconds += node_seconds(copied, local, options.node);
  return cost;
}

}  // namespace

MessageCost gathering_cost(double elements, ProcessGroup group, const PlanOptions& options) {
  const int local = ranks_on_node(group, options.ranks_per_node);
  return half_cost(elements, copied_by_allgather(elements, local), local, group, options);
}

MessageCost scattering_cost(double elements, ProcessGroup group, const PlanOptions& options) {
  const int local = ranks_on_node(group, options.ranks_per_node);
  return half_cost(elements, copied_by_reduce_scatter(elements, local), local, group, options);
}

namespace {

// How an allreduce goes: among so many ranks on each of so many nodes.
struct AllreduceWay {
  int local = 1;
  int nodes = 1;
  AllreduceAlgorithm algorithm = AllreduceAlgorithm::ring;
};

AllreduceWay allreduce_way(double elements, ProcessGroup group, const PlanOptions& options) {
  const int local = ranks_on_node(group, options.ranks_per_node);
  const int nodes = group.size / local;
  const auto bytes = static_cast<std::size_t>(elements * element_bytes);
  const transport::AllreducePath path = options.paths.of(static_cast<std::size_t>(nodes), bytes);
  if (nodes == 1) return {.local = local};
  if (path.flat) return {.nodes = group.size, .algorithm = path.algorithm};
  return {.local = local, .nodes = nodes, .algorithm = path.algorithm};
}

// An exchange of `elements` between so many nodes, where so many ranks of a node share its port:
// `owners` of each group, each of which has its share.
MessageCost between_nodes(double elements, const AllreduceWay& way, int owners, int senders,
                          const PlanOptions& options) {
  const double share = elements / owners;
  const LinkCost link = fabric_of_one_of(senders, options);
  switch (way.algorithm) {
    case AllreduceAlgorithm::doubling:
      return doubling_cost(share, way.nodes, link);
    case AllreduceAlgorithm::halving:
      return halving_cost(share, way.nodes, link);
    case AllreduceAlgorithm::ring:
      break;
  }
  const MessageCost half = ring_cost(share, way.nodes, senders, options);
  return half + half;
}

}  // namespace

MessageCost allreduce_cost(double elements, ProcessGroup group, const PlanOptions& options) {
  const AllreduceWay way = allreduce_way(elements, group, options);
  const double inside = allreduce_inside(elements, way.local, way.nodes == 1, options.node);
  if (way.nodes == 1) return {.seconds = inside};
  const int owners = way.algorithm == AllreduceAlgorithm::doubling ? 1 : way.local;
  const int senders = options.ranks_per_node / way.local * owners;
  MessageCost cost = between_nodes(elements, way, owners, senders, options);
  const auto bytes = static_cast<std::size_t>(elements * element_bytes);
  const auto blocks = transport::AllreducePaths::blocks(bytes, static_cast<std::size_t>(owners),
                                                        static_cast<std::size_t>(way.nodes));
  cost.seconds = overlapped(inside, cost.seconds, blocks);
  return cost;
}

double agreement_seconds(const PlanOptions& options) {
  return allreduce_cost(2.0, {.size = options.ranks, .stride = 1}, options).seconds;
}

// One message each way between neighbours; they are sent at the same time.
double halo_seconds(double elements, ProcessGroup group, const PlanOptions& options) {
  if (group.size == 1 || elements == 0.0) return 0.0;
  return message_seconds(elements, link_within(group, options));
}

MessageCost messages_cost(Messages messages, ProcessGroup group, const PlanOptions& options) {
  if (messages.count == 0) return {};
  const LinkCost link = link_within(group, options);
  const double bytes = static_cast<double>(messages.elements) * element_bytes / link.bandwidth;
  if (is_on_one_node(group, options)) {
    return {.seconds = static_cast<double>(messages.count) * link.alpha_seconds + bytes};
  }
  return {.seconds = link.alpha_seconds + bytes, .busy = bytes, .rounds = 1.0};
}

MessageCost received_cost(std::span<const Received> ranks, const PlanOptions& options) {
  const auto bytes_of = [&](std::int64_t elements) {
    return in_f32(static_cast<double>(elements), options.type) * element_bytes;
  };
  const double port = options.port_bandwidth > 0.0 ? options.port_bandwidth
                                                   : std::numeric_limits<double>::infinity();
  MessageCost longest;
  std::int64_t into_node = 0;
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    const auto& [near, far] = ranks[rank];
    if (rank % static_cast<std::size_t>(options.ranks_per_node) == 0) into_node = 0;
    into_node += far.elements;
    const double from_node = static_cast<double>(near.count) * options.node.alpha_seconds +
                             bytes_of(near.elements) / options.node.bandwidth;
    longest.seconds = std::max(longest.seconds, from_node);
    if (far.count == 0) continue;
    const double busy =
        std::max(bytes_of(far.elements) / options.fabric.bandwidth, bytes_of(into_node) / port);
    longest.seconds = std::max(longest.seconds, options.fabric.alpha_seconds + busy);
    longest.busy = std::max(longest.busy, busy);
    longest.rounds = 1.0;
  }
  return longest;
}

}  // namespace rondo::train
