// Hierarchical allgather and reduce_scatter: every rank has a share of its own.
//
//                   on each node                 among owners       on each node
//   allgather       allgather of the node's      ring allgather     allgather of what came for each
//                   shares                                          other node
//   reduce_scatter  reduce_scatter of each       ring               alltoallv of the node's shares
//                   node's shares                reduce_scatter     from their owners
//
// The data is seen as the shares of node 0, then those of node 1, and so on, and cut as SharesCut
// says. Where a node's ranks are consecutive and shares are single rows, it lies like this in the
// caller's memory, and is used there. Else it is packed into scratch, a window of all shares at a
// time, and copied out.
//
// Between N nodes and with q shards an owner sends (N-1)/N n/q bytes in N-1 messages for each block
// and segment. A flat ring over P ranks sends (P-1)/P n from each, in P-1 steps; if ranks of a node
// are not consecutive, each of its hops crosses the network. Flat is better only for long shares
// whose rows have gaps, with consecutive ranks: about the same bytes leave a node then, and
// the ring needs no packing.
//
// Sums: first over the ranks of each node in their order, then over the nodes in the order of the
// ring.

#include <cstddef>
#include <span>
#include <vector>

#include "base/cache_line.hpp"
#include "collective/algorithms.hpp"
#include "collective/hierarchical/hierarchical.hpp"
#include "reduce/reduce.hpp"

namespace rondo::transport {
namespace {

using shm::Collective;

std::size_t share_bytes(const Hierarchy& levels, const Posted& posted,
                        const Hierarchy::Place& place) noexcept {
  return posted.share_row_bytes(levels.nodes[place.node][place.rank]) * posted.input.rows;
}

constexpr std::size_t whole_lines(std::size_t bytes) noexcept {
  return round_up(bytes, cache_line_bytes);
}

Range overlap(const Range& a, const Range& b) noexcept {
  const std::size_t begin = std::max(a.begin, b.begin);
  return {begin, std::max(begin, std::min(a.end, b.end))};
}

// Packed blocks of all ranks' shares are not longer than this, if their pieces are not too short.
constexpr std::size_t most_packed_bytes = std::size_t{4} << 20U;
constexpr std::size_t least_piece_bytes = std::size_t{4} << 10U;

}  // namespace

SharesCut::SharesCut(const Hierarchy& levels, const Posted& posted, bool single)
    : single_(single), in_place_(levels.consecutive && posted.input.rows <= 1) {
  std::size_t longest_share = 0;
  std::size_t longest_node = 0;
  std::size_t total = 0;
  std::size_t ranks = 0;
  for (std::size_t n = 0; n < levels.nodes.size(); ++n) {
    const std::size_t before = total;
    for (std::size_t r = 0; r < levels.nodes[n].size(); ++r) {
      const std::size_t share = share_bytes(levels, posted, {n, r});
      longest_share = std::max(longest_share, share);
      total += share;
    }
    longest_node = std::max(longest_node, total - before);
    ranks += levels.nodes[n].size();
  }
  const std::size_t nodes = levels.nodes.size();
  const std::size_t of_a_node =
      HierarchyPlan::cut(total, levels.shards, nodes) * levels.shards / nodes;
  const std::size_t packed = std::max(most_packed_bytes / ranks, least_piece_bytes);
  const std::size_t of_a_share = std::min(of_a_node / levels.most_members, packed);
  window_ = whole_lines(single_ ? std::max<std::size_t>(total, 1)
                                : std::max<std::size_t>(in_place_ ? of_a_node : of_a_share, 1));
  blocks_ = ((in_place_ ? longest_node : longest_share) + window_ - 1) / window_;
  runs_are_pieces_ = !single_ && levels.even && (!in_place_ || blocks_ <= 1);
}

Range SharesCut::part_in(std::size_t block, std::size_t before, std::size_t share) const noexcept {
  const auto part_below = [&](std::size_t end) {
    return std::clamp(end, before, before + share) - before;
  };
  return {part_below(block * window_), part_below((block + 1) * window_)};
}

Range SharesCut::piece(const Hierarchy& levels, const Posted& posted, const Hierarchy::Place& place,
                       std::size_t block) const noexcept {
  const std::size_t share = share_bytes(levels, posted, place);
  if (blocks_ <= 1) return {0, share};
  std::size_t before = 0;  // a block takes a part of the node's bytes, or of the share's
  for (std::size_t r = 0; in_place_ && r < place.rank; ++r) {
    before += share_bytes(levels, posted, {place.node, r});
  }
  return part_in(block, before, share);
}

void SharesCut::pieces_of(const Hierarchy& levels, const Posted& posted, std::size_t node,
                          std::size_t block, std::vector<std::size_t>& bytes) const {
  bytes.clear();
  std::size_t before = 0;
  for (std::size_t r = 0; r < levels.nodes[node].size(); ++r) {
    const std::size_t share = share_bytes(levels, posted, {node, r});
    bytes.push_back(part_in(block, before, share).size());
    if (in_place_) before += share;
  }
}

void SharesCut::lay_out(const Hierarchy& levels, const Posted& posted, std::size_t block,
                        std::vector<Range>& ranges) const {
  ranges.clear();
  std::size_t at = 0;
  for (std::size_t n = 0; n < levels.nodes.size(); ++n) {
    std::size_t bytes = 0;
    for (std::size_t r = 0; r < levels.nodes[n].size(); ++r) {
      const Hierarchy::Place place{n, r};
      bytes += in_place_ ? share_bytes(levels, posted, place)
                         : piece(levels, posted, place, block).size();
    }
    const std::size_t begin = in_place_ ? std::min(bytes, block * window_) : 0;
    const std::size_t end = in_place_ ? std::min(bytes, begin + window_) : bytes;
    ranges.push_back({at + begin, at + end});
    at += bytes;
  }
}

Range SharesCut::run(const Hierarchy& levels, const Posted& posted, std::size_t block,
                     std::size_t node, const Range& range, std::size_t owner) const noexcept {
  if (single_ && owner == 0) return range;
  if (single_ || owner >= levels.shards) return {range.end, range.end};
  if (!runs_are_pieces_) {
    const Range part = slice(range.size(), levels.shards, owner, cache_line_bytes);
    return {range.begin + part.begin, range.begin + part.end};
  }
  std::size_t begin = range.begin;
  for (std::size_t r = 0; r < owner; ++r) begin += piece(levels, posted, {node, r}, block).size();
  return {begin, begin + piece(levels, posted, {node, owner}, block).size()};
}

namespace {

// The common base of both: the block that is laid out, and scratch for blocks under way.
class HierarchicalShares : public HierarchicalOperation {
 protected:
  HierarchicalShares(Group& group, const Posted& posted, std::size_t bytes)
      : HierarchicalOperation(group),
        cut_(*group.levels, posted, is_short(group, posted.fingerprint.collective, bytes)),
        element_bytes_(size_of(posted.fingerprint.type)) {
    shape.blocks = cut_.blocks();
    shape.under_way = 4;
  }

  // Fills in the ranges of the nodes for a block, unless they are those of this block.
  const std::vector<Range>& nodes_of(const Group& group, const Posted& posted, std::size_t block) {
    if (laid_out_ != block) cut_.lay_out(*group.levels, posted, block, group.levels->node_ranges);
    laid_out_ = block;
    return group.levels->node_ranges;
  }
  [[nodiscard]] Range run(const Group& group, const Posted& posted, std::size_t block,
                          std::size_t node, std::size_t owner) {
    return cut_.run(*group.levels, posted, block, node, nodes_of(group, posted, block)[node],
                    owner);
  }
  // Bytes of the range of `node` that a rank of this node owns.
  [[nodiscard]] std::size_t run_bytes(const Group& group, const Posted& posted, std::size_t block,
                                      std::size_t node, std::size_t owner) {
    if (cut_.runs_are_pieces()) {
      return cut_.piece(*group.levels, posted, {node, owner}, block).size();
    }
    return run(group, posted, block, node, owner).size();
  }
  // Elements of the range of `node` that each rank of this node owns.
  std::span<const std::size_t> runs_of(Group& group, const Posted& posted, std::size_t block,
                                       std::size_t node);
  [[nodiscard]] Range own_piece(const Group& group, const Posted& posted,
                                std::size_t block) const noexcept {
    const Hierarchy& levels = *group.levels;
    return cut_.piece(levels, posted, {levels.node, levels.node_rank}, block);
  }
  // Elements of the pieces of all ranks of this node.
  std::span<const std::size_t> pieces_here(Group& group, const Posted& posted, std::size_t block);

  // Divides scratch into an area for each block under way, of `bytes` rounded up to whole lines.
  void take_scratch(Group& group, std::size_t bytes) {
    slot_bytes_ = whole_lines(bytes);
    scratch_ = group.levels->scratch.take(std::min(shape.blocks, shape.under_way) * slot_bytes_);
  }
  [[nodiscard]] std::byte* slot(std::size_t block) const noexcept {
    return scratch_.data() + block % shape.under_way * slot_bytes_;
  }
  // Calls copy(member, bytes of its share, their place in the slot) for the pieces that stand in
  // the slot of a block, node by node.
  template <typename Copy>
  void for_packed(const Group& group, const Posted& posted, std::size_t block,
                  const Copy& copy) const {
    const Hierarchy& levels = *group.levels;
    for_pieces(group.team, [&](Pieces& pieces) {
      for (std::size_t n = 0; n < levels.nodes.size(); ++n) {
        for (std::size_t r = 0; r < levels.nodes[n].size(); ++r) {
          const Range piece = cut_.piece(levels, posted, {n, r}, block);
          std::byte* const packed = slot(block) + pieces.bytes();
          pieces.next(piece.size(), [&](const Range& part) {
            copy(levels.nodes[n][r], Range{piece.begin + part.begin, piece.begin + part.end},
                 packed + part.begin);
          });
        }
      }
    });
  }

  SharesCut cut_;
  std::size_t element_bytes_;

 private:
  static constexpr std::size_t nothing = ~std::size_t{0};
  std::size_t laid_out_ = nothing;
  std::size_t slot_bytes_ = 0;
  std::span<std::byte> scratch_;
};

std::span<const std::size_t> HierarchicalShares::runs_of(Group& group, const Posted& posted,
                                                         std::size_t block, std::size_t node) {
  std::vector<std::size_t>& shares = group.levels->shares;
  shares.resize(group.levels->members_here().size());
  for (std::size_t r = 0; r < shares.size(); ++r) {
    shares[r] = run_bytes(group, posted, block, node, r) / element_bytes_;
  }
  return shares;
}

std::span<const std::size_t> HierarchicalShares::pieces_here(Group& group, const Posted& posted,
                                                             std::size_t block) {
  std::vector<std::size_t>& shares = group.levels->shares;
  cut_.pieces_of(*group.levels, posted, group.levels->node, block, shares);
  for (std::size_t& share : shares) share /= element_bytes_;
  return shares;
}

// The shares of all nodes lie side by side in the output, or in scratch.
class HierarchicalAllgather final : public HierarchicalShares {
 public:
  HierarchicalAllgather(Group& group, const Posted& posted)
      : HierarchicalShares(group, posted, posted.output.bytes()) {
    shape.after = cut_.single() ? 1 : group.levels->nodes.size() - 1;
    if (shape.blocks > 0 && !cut_.in_place()) {
      take_scratch(group, nodes_of(group, posted, 0).back().end);
    }
  }

 private:
  [[nodiscard]] Block gathered(const Posted& posted, std::size_t block, const Range& range) const {
    if (cut_.in_place()) return part_of(posted.output, range);
    return row_of(slot(block) + range.begin, posted.fingerprint.type, range.size());
  }
  Request post_before(Group& group, const Posted& posted, std::size_t block,
                      std::size_t part) override;
  bool describe_exchange(Group& group, const Posted& posted, std::size_t block,
                         Posted& exchange) override;
  Request post_after(Group& group, const Posted& posted, std::size_t block,
                     std::size_t part) override;
  void finish(Group& group, const Posted& posted, std::size_t block) override;
};

// Only this rank's own piece is packed.
Request HierarchicalAllgather::post_before(Group& group, const Posted& posted, std::size_t block,
                                           std::size_t /*part*/) {
  const Hierarchy& levels = *group.levels;
  const Range range = nodes_of(group, posted, block)[levels.node];
  if (range.size() == 0) return {};
  const Range piece = own_piece(group, posted, block);
  ConstBlock own = part_of(posted.input, piece);
  if (!cut_.in_place()) {
    std::size_t begin = range.begin;
    for (const std::size_t share : pieces_here(group, posted, block).first(levels.node_rank)) {
      begin += share * element_bytes_;
    }
    const Block packed = gathered(posted, block, {begin, begin + piece.size()});
    copy_from_rows(group.team, packed.data, posted.input, piece.begin, piece.size());
    own = as_const_block(packed);
  }
  NodeCommunicator& node = *levels.node_scatter;
  return node.post(node.prepare_allgather(own, gathered(posted, block, range),
                                          pieces_here(group, posted, block)));
}

// In place: an owner sends its run of its node's shares from where it wants the others'.
bool HierarchicalAllgather::describe_exchange(Group& group, const Posted& posted, std::size_t block,
                                              Posted& exchange) {
  const Hierarchy& levels = *group.levels;
  std::size_t bytes = 0;
  for (std::size_t n = 0; n < levels.nodes.size(); ++n) {
    const Range range = run(group, posted, block, n, levels.node_rank);
    exchange.received_at.push_back(range.begin);
    exchange.row_bytes_of.push_back(range.size());
    bytes += range.size();
  }
  const Range own = run(group, posted, block, levels.node, levels.node_rank);
  exchange.input = as_const_block(gathered(posted, block, own));
  exchange.output = gathered(posted, block, {0, nodes_of(group, posted, block).back().end});
  return bytes > 0;
}

// A leader that has exchanged everything passes it on at once; else an operation for each other
// node gathers the runs of its shares.
Request HierarchicalAllgather::post_after(Group& group, const Posted& posted, std::size_t block,
                                          std::size_t part) {
  const Hierarchy& levels = *group.levels;
  NodeCommunicator& node = *levels.node_gather;
  const std::vector<Range>& ranges = nodes_of(group, posted, block);
  if (cut_.single()) {
    const Range all{ranges.front().begin, ranges.back().end};
    return node.post(node.prepare_broadcast(gathered(posted, block, all), 0));
  }
  const std::size_t from = part < levels.node ? part : part + 1;
  if (ranges[from].size() == 0) return {};
  const Range own = run(group, posted, block, from, levels.node_rank);
  return node.post(node.prepare_allgather(as_const_block(gathered(posted, block, own)),
                                          gathered(posted, block, ranges[from]),
                                          runs_of(group, posted, block, from)));
}

void HierarchicalAllgather::finish(Group& group, const Posted& posted, std::size_t block) {
  if (cut_.in_place()) return;
  for_packed(group, posted, block, [&](std::size_t member, const Range& piece, std::byte* packed) {
    copy_into_rows(nullptr, column_of(posted.output, posted, member), piece.begin, packed,
                   piece.size());
  });
}

// The area of a block in scratch: what is packed of the input, the sums over this node of the runs
// that this rank owns, their sums over all nodes, and what is packed of the output.
class HierarchicalReduceScatter final : public HierarchicalShares {
 public:
  HierarchicalReduceScatter(Group& group, const Posted& posted);

 private:
  Request post_before(Group& group, const Posted& posted, std::size_t block,
                      std::size_t part) override;
  bool describe_exchange(Group& group, const Posted& posted, std::size_t block,
                         Posted& exchange) override;
  Request post_after(Group& group, const Posted& posted, std::size_t block,
                     std::size_t part) override;
  void finish(Group& group, const Posted& posted, std::size_t block) override;

  void pack(const Group& group, const Posted& posted, std::size_t block) const;
  [[nodiscard]] std::size_t owned_bytes(const Group& group, const Posted& posted, std::size_t block,
                                        std::size_t nodes);
  [[nodiscard]] Block node_sums(const Posted& posted, std::size_t block, const Range& range) const {
    return row_of(slot(block) + input_bytes_ + range.begin, posted.fingerprint.type, range.size());
  }
  [[nodiscard]] Block final_sums(Group& group, const Posted& posted, std::size_t block);
  [[nodiscard]] Block own_sums(const Group& group, const Posted& posted, std::size_t block) const;

  bool direct_;  // owners reduce straight into their own output
  std::size_t input_bytes_ = 0;
  std::size_t sums_bytes_ = 0;
};

HierarchicalReduceScatter::HierarchicalReduceScatter(Group& group, const Posted& posted)
    : HierarchicalShares(group, posted, posted.input.bytes()),
      direct_(cut_.runs_are_pieces() && posted.output.dense()) {
  const Hierarchy& levels = *group.levels;
  shape.before = cut_.single() ? 1 : levels.nodes.size();
  shape.after = cut_.runs_are_pieces() ? 0 : 1;
  if (shape.blocks == 0) return;
  if (!cut_.in_place()) input_bytes_ = whole_lines(nodes_of(group, posted, 0).back().end);
  // A run of a later block can be longer than that of the first by a line.
  const std::size_t more_bytes = levels.nodes.size() * cache_line_bytes;
  sums_bytes_ = whole_lines(owned_bytes(group, posted, 0, levels.nodes.size()) + more_bytes);
  take_scratch(group, input_bytes_ + 2 * sums_bytes_ + own_piece(group, posted, 0).size() +
                          cache_line_bytes);
}

// The bytes that this rank owns of the runs of the first `nodes` nodes.
std::size_t HierarchicalReduceScatter::owned_bytes(const Group& group, const Posted& posted,
                                                   std::size_t block, std::size_t nodes) {
  std::size_t bytes = 0;
  for (std::size_t n = 0; n < nodes; ++n) {
    bytes += run_bytes(group, posted, block, n, group.levels->node_rank);
  }
  return bytes;
}

void HierarchicalReduceScatter::pack(const Group& group, const Posted& posted,
                                     std::size_t block) const {
  for_packed(group, posted, block, [&](std::size_t member, const Range& piece, std::byte* packed) {
    copy_from_rows(nullptr, packed, column_of(posted.input, posted, member), piece.begin,
                   piece.size());
  });
}

// One operation for each node's shares; for short data, one for all.
Request HierarchicalReduceScatter::post_before(Group& group, const Posted& posted,
                                               std::size_t block, std::size_t part) {
  const Hierarchy& levels = *group.levels;
  if (part == 0 && !cut_.in_place()) pack(group, posted, block);
  const std::vector<Range>& ranges = nodes_of(group, posted, block);
  Range range = ranges[part];
  std::span<const std::size_t> counts;
  if (cut_.single()) {
    range.end = ranges.back().end;
    group.levels->shares.assign(levels.members_here().size(), 0);
    group.levels->shares[0] = range.size() / element_bytes_;
    counts = group.levels->shares;
  } else {
    counts = runs_of(group, posted, block, part);
  }
  if (range.size() == 0) return {};
  const ConstBlock input = cut_.in_place()
                               ? part_of(posted.input, range)
                               : as_const_block(row_of(slot(block) + range.begin,
                                                       posted.fingerprint.type, range.size()));
  const std::size_t begin = owned_bytes(group, posted, block, part);
  const std::size_t bytes = counts[levels.node_rank] * element_bytes_;
  NodeCommunicator& node = *levels.node_scatter;
  return node.post(node.prepare_reduce_scatter(input,
                                               node_sums(posted, block, {begin, begin + bytes}),
                                               partial_op(posted.fingerprint.op), counts));
}

// Where the ring leaves the sums of this rank's run of its node's shares.
Block HierarchicalReduceScatter::final_sums(Group& group, const Posted& posted, std::size_t block) {
  if (direct_) return own_sums(group, posted, block);
  const Hierarchy& levels = *group.levels;
  const std::size_t bytes = run_bytes(group, posted, block, levels.node, levels.node_rank);
  return row_of(slot(block) + input_bytes_ + sums_bytes_, posted.fingerprint.type, bytes);
}

// Where this rank's piece of its share is complete.
Block HierarchicalReduceScatter::own_sums(const Group& group, const Posted& posted,
                                          std::size_t block) const {
  const Range piece = own_piece(group, posted, block);
  if (posted.output.dense()) return part_of(posted.output, piece);
  return row_of(slot(block) + input_bytes_ + 2 * sums_bytes_, posted.fingerprint.type,
                piece.size());
}

bool HierarchicalReduceScatter::describe_exchange(Group& group, const Posted& posted,
                                                  std::size_t block, Posted& exchange) {
  const Hierarchy& levels = *group.levels;
  for (std::size_t n = 0; n < levels.nodes.size(); ++n) {
    exchange.row_bytes_of.push_back(run_bytes(group, posted, block, n, levels.node_rank));
  }
  const std::size_t bytes = owned_bytes(group, posted, block, levels.nodes.size());
  exchange.input = as_const_block(node_sums(posted, block, {0, bytes}));
  exchange.output = final_sums(group, posted, block);
  return bytes > 0;
}

// Each owner has a run of the node's shares, each rank of the node wants its piece of them.
Request HierarchicalReduceScatter::post_after(Group& group, const Posted& posted, std::size_t block,
                                              std::size_t /*part*/) {
  Hierarchy& levels = *group.levels;
  const Range range = nodes_of(group, posted, block)[levels.node];
  if (range.size() == 0) return {};
  const Range owned = run(group, posted, block, levels.node, levels.node_rank);
  levels.sent.clear();
  levels.received.clear();
  Range own{};
  Range piece{range.begin, range.begin};
  const std::span<const std::size_t> pieces = pieces_here(group, posted, block);
  for (std::size_t r = 0; r < pieces.size(); ++r) {
    piece.begin = piece.end;
    piece.end += pieces[r] * element_bytes_;
    if (r == levels.node_rank) own = piece;
    levels.sent.push_back(overlap(owned, piece).size() / element_bytes_);
  }
  for (std::size_t r = 0; r < levels.members_here().size(); ++r) {
    const Range theirs = run(group, posted, block, levels.node, r);
    levels.received.push_back(overlap(theirs, own).size() / element_bytes_);
  }
  NodeCommunicator& node = *levels.node_gather;
  return node.post(node.prepare_alltoallv(as_const_block(final_sums(group, posted, block)),
                                          levels.sent, own_sums(group, posted, block),
                                          levels.received));
}

void HierarchicalReduceScatter::finish(Group& group, const Posted& posted, std::size_t block) {
  if (posted.output.dense()) return;
  const Block sums =
      cut_.runs_are_pieces() ? final_sums(group, posted, block) : own_sums(group, posted, block);
  const Range piece = own_piece(group, posted, block);
  copy_into_rows(group.team, posted.output, piece.begin, sums.data, piece.size());
}

template <Collective collective>
bool suits_shares(const Group& group, const Posted& posted) {
  if (posted.fingerprint.collective != collective) return false;
  const std::size_t bytes =
      collective == Collective::allgather ? posted.output.bytes() : posted.input.bytes();
  if (!is_hierarchical(group, bytes)) return false;
  return posted.input.rows <= 1 || !group.levels->consecutive || is_short(group, collective, bytes);
}

}  // namespace

constexpr Algorithm algorithms::hierarchical_allgather =
    algorithm_of<HierarchicalAllgather>(Protocol::links, &suits_shares<Collective::allgather>);

constexpr Algorithm algorithms::hierarchical_reduce_scatter =
    algorithm_of<HierarchicalReduceScatter>(Protocol::links,
                                            &suits_shares<Collective::reduce_scatter>);

}  // namespace rondo::transport
