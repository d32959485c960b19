// What a collective or a message costs between ranks that may be on one node or on several.

#include "plan/collective_cost.hpp"

#include <bit>
#include <numeric>

namespace rondo::train {
namespace {

double message_seconds(double words, const LinkCost& link) {
  return link.alpha_seconds + words * word_bytes / link.bandwidth;
}

// ceil(log2 ranks)
int rounds_of(int ranks) {
  return static_cast<int>(std::bit_width(static_cast<unsigned>(ranks) - 1U));
}

double flat_seconds(double words, int ranks, const LinkCost& link) {
  const double moved = words * static_cast<double>(ranks - 1) / static_cast<double>(ranks);
  return link.alpha_seconds * rounds_of(ranks) + moved * word_bytes / link.bandwidth;
}

// How many ranks of the group share a node.
int ranks_on_node(Group group, int ranks_per_node) {
  if (ranks_per_node % group.stride != 0) return 1;
  return std::gcd(group.size, ranks_per_node / group.stride);
}

const LinkCost& link_within(Group group, const PlanOptions& options) {
  const bool inside = ranks_on_node(group, options.ranks_per_node) == group.size;
  return inside ? options.node : options.fabric;
}

}  // namespace

double collective_seconds(double words, Group group, const PlanOptions& options) {
  const int local = ranks_on_node(group, options.ranks_per_node);
  return flat_seconds(words, local, options.node) +
         flat_seconds(words / local, group.size / local, options.fabric);
}

double halo_seconds(double words, Group group, const PlanOptions& options) {
  if (group.size == 1 || words == 0.0) return 0.0;
  return message_seconds(words, link_within(group, options));
}

double messages_seconds(Messages messages, Group group, const PlanOptions& options) {
  if (messages.count == 0) return 0.0;
  const LinkCost& link = link_within(group, options);
  const auto words = static_cast<double>(messages.words);
  return static_cast<double>(messages.count) * link.alpha_seconds +
         words * word_bytes / link.bandwidth;
}

}  // namespace rondo::train
