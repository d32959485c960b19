// Hierarchical alltoall of short parts: leaders exchange what goes from node to node.
//
// The leader of a node gathers the inputs of its ranks, sorts their parts by the node that they go
// to, and exchanges one message with the leader of each other node; then it sorts what has come by
// the rank that it is for, and scatters it on its node. Between N nodes a leader sends N-1 messages
// with all that leaves its node, where flat each rank sends one to each of the P-m ranks elsewhere.
// As many bytes leave a node either way.
//
// But the leader copies every part four times, and all others wait meanwhile. A message costs a
// rank some microseconds, as much as copying some KiB. So flat is better when the parts that the
// ranks of one node have for a rank elsewhere are longer than most_parts_bytes together.

#include <cstddef>
#include <cstring>
#include <span>

#include "collective/algorithms.hpp"
#include "collective/hierarchical/hierarchical.hpp"

namespace rondo::transport {
namespace {

constexpr std::size_t most_parts_bytes = std::size_t{4} << 10U;

// The leader's scratch has four areas, each as long as the inputs of its node together: these, the
// same by node, what comes by node, and the outputs.
class HierarchicalAlltoall final : public HierarchicalOperation {
 public:
  HierarchicalAlltoall(Group& group, const Posted& posted);

 private:
  enum Area : std::size_t { inputs, outgoing, incoming, outputs, areas };

  Request post_before(Group& group, const Posted& posted, std::size_t block,
                      std::size_t part) override;
  bool describe_exchange(Group& group, const Posted& posted, std::size_t block,
                         Posted& exchange) override;
  Request post_after(Group& group, const Posted& posted, std::size_t block,
                     std::size_t part) override;
  void sort_outgoing(const Group& group) const;
  void sort_incoming(const Group& group) const;
  void copy_next(Pieces& parts, std::byte* into, const std::byte* from) const {
    parts.next(part_bytes_, [&](const Range& part) {
      std::memcpy(into + part.begin, from + part.begin, part.size());
    });
  }
  [[nodiscard]] std::byte* area(Area which) const noexcept {
    return scratch_.data() + which * area_bytes_;
  }
  [[nodiscard]] Block block_of(Area which, const Posted& posted) const noexcept {
    if (scratch_.empty()) return {nullptr, posted.fingerprint.type, 1, 0, 0};
    return {area(which), posted.fingerprint.type, 1, area_bytes_, area_bytes_};
  }

  std::size_t part_bytes_;
  std::size_t input_bytes_;  // of one rank
  std::size_t area_bytes_;
  std::span<std::byte> scratch_;
};

HierarchicalAlltoall::HierarchicalAlltoall(Group& group, const Posted& posted)
    : HierarchicalOperation(group),
      part_bytes_(posted.row_bytes_each),
      input_bytes_(posted.input.bytes()),
      area_bytes_(input_bytes_ * group.levels->members_here().size()) {
  if (input_bytes_ == 0) shape.blocks = 0;
  if (group.levels->node_rank == 0) scratch_ = group.levels->scratch.take(areas * area_bytes_);
}

Request HierarchicalAlltoall::post_before(Group& group, const Posted& posted, std::size_t /*block*/,
                                          std::size_t /*part*/) {
  NodeCommunicator& node = *group.levels->node_scatter;
  return node.post(node.prepare_gather(posted.input, block_of(inputs, posted), 0, {}));
}

// For each node: of each rank here, the parts for its ranks.
void HierarchicalAlltoall::sort_outgoing(const Group& group) const {
  const Hierarchy& levels = *group.levels;
  for_pieces(group.team, [&](Pieces& parts) {
    for (const auto& members : levels.nodes) {
      for (std::size_t source = 0; source < levels.members_here().size(); ++source) {
        for (const std::size_t member : members) {
          std::byte* const into = area(outgoing) + parts.bytes();
          const std::byte* const from = area(inputs) + source * input_bytes_ + member * part_bytes_;
          copy_next(parts, into, from);
        }
      }
    }
  });
}

// An alltoallv among the leaders. Parts that stay on this node are exchanged with itself.
bool HierarchicalAlltoall::describe_exchange(Group& group, const Posted& posted,
                                             std::size_t /*block*/, Posted& exchange) {
  const Hierarchy& levels = *group.levels;
  if (levels.node_rank != 0) return false;
  sort_outgoing(group);
  exchange.fingerprint.collective = shm::Collective::alltoallv;
  exchange.input = as_const_block(block_of(outgoing, posted));
  exchange.output = block_of(incoming, posted);
  std::size_t end = 0;
  exchange.sent_at.push_back(end);
  for (const auto& members : levels.nodes) {
    end += members.size() * levels.members_here().size() * part_bytes_;
    exchange.sent_at.push_back(end);
  }
  exchange.received_at = exchange.sent_at;
  return true;
}

// Each node has sent the parts for the ranks here, from one of its ranks after the other.
void HierarchicalAlltoall::sort_incoming(const Group& group) const {
  const Hierarchy& levels = *group.levels;
  for_pieces(group.team, [&](Pieces& parts) {
    for (const auto& members : levels.nodes) {
      for (const std::size_t member : members) {
        for (std::size_t target = 0; target < levels.members_here().size(); ++target) {
          std::byte* const into = area(outputs) + target * input_bytes_ + member * part_bytes_;
          copy_next(parts, into, area(incoming) + parts.bytes());
        }
      }
    }
  });
}

Request HierarchicalAlltoall::post_after(Group& group, const Posted& posted, std::size_t /*block*/,
                                         std::size_t /*part*/) {
  if (group.levels->node_rank == 0) sort_incoming(group);
  NodeCommunicator& node = *group.levels->node_gather;
  return node.post(
      node.prepare_scatter(as_const_block(block_of(outputs, posted)), posted.output, 0, {}));
}

bool suits_alltoall(const Group& group, const Posted& posted) {
  return posted.fingerprint.collective == shm::Collective::alltoall &&
         is_hierarchical(group, posted.input.bytes()) &&
         group.levels->most_members * posted.row_bytes_each <= most_parts_bytes;
}

}  // namespace

constexpr Algorithm algorithms::hierarchical_alltoall =
    algorithm_of<HierarchicalAlltoall>(Protocol::links, &suits_alltoall);

}  // namespace rondo::transport
