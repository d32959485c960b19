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

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <span>
#include <vector>

#include "base/cache_line.hpp"
#include "collective/algorithms.hpp"
#include "collective/hierarchical/hierarchical.hpp"

namespace rondo::transport {
namespace {

using shm::Collective;

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
    : levels_(&levels),
      posted_(&posted),
      single_(single),
      in_place_(levels.consecutive && posted.input.rows <= 1) {
  std::size_t longest_share = 0;
  std::size_t longest_node = 0;
  std::size_t total = 0;
  std::size_t ranks = 0;
  for (std::size_t n = 0; n < levels.nodes.size(); ++n) {
    const std::size_t before = total;
    for (std::size_t r = 0; r < levels.nodes[n].size(); ++r) {
      const std::size_t share = share_bytes({n, r});
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

Range SharesCut::piece(const Hierarchy::Place& place, std::size_t block) const noexcept {
  const std::size_t share = share_bytes(place);
  if (blocks_ <= 1) return {0, share};
  std::size_t before = 0;  // a block takes a part of the node's bytes, or of the share's
  for (std::size_t r = 0; in_place_ && r < place.rank; ++r) {
    before += share_bytes({place.node, r});
  }
  return part_in(block, before, share);
}

void SharesCut::pieces_of(std::size_t node, std::size_t block,
                          std::vector<std::size_t>& bytes) const {
  bytes.clear();
  std::size_t before = 0;
  for (std::size_t r = 0; r < levels_->nodes[node].size(); ++r) {
    const std::size_t share = share_bytes({node, r});
    bytes.push_back(part_in(block, before, share).size());
    if (in_place_) before += share;
  }
}

void SharesCut::lay_out(std::size_t block, std::vector<Range>& ranges) const {
  ranges.clear();
  std::size_t at = 0;
  for (std::size_t n = 0; n < levels_->nodes.size(); ++n) {
    std::size_t bytes = 0;
    for (std::size_t r = 0; r < levels_->nodes[n].size(); ++r) {
      const Hierarchy::Place place{n, r};
      bytes += in_place_ ? share_bytes(place) : piece(place, block).size();
    }
    const std::size_t begin = in_place_ ? std::min(bytes, block * window_) : 0;
    const std::size_t end = in_place_ ? std::min(bytes, begin + window_) : bytes;
    ranges.push_back({at + begin, at + end});
    at += bytes;
  }
}

Range SharesCut::run(std::size_t block, std::size_t node, const Range& range,
                     std::size_t owner) const noexcept {
  if (single_ && owner == 0) return range;
  if (single_ || owner >= levels_->shards) return {range.end, range.end};
  if (!runs_are_pieces_) {
    const Range part = slice(range.size(), levels_->shards, owner, cache_line_bytes);
    return {range.begin + part.begin, range.begin + part.end};
  }
  std::size_t begin = range.begin;
  for (std::size_t r = 0; r < owner; ++r) begin += piece({node, r}, block).size();
  return {begin, begin + piece({node, owner}, block).size()};
}

namespace {

// The common base of both: the block that is laid out, and scratch for blocks under way.
class HierarchicalShares : public HierarchicalOperation {
 protected:
  HierarchicalShares(Group& group, const Posted& posted, std::size_t bytes)
      : HierarchicalOperation(group, posted),
        cut_(levels_, posted, is_short(group, posted.fingerprint.collective, bytes)) {
    shape.blocks = cut_.blocks();
    shape.under_way = 4;
  }

  // The ranges of the nodes for a block.
  const std::vector<Range>& nodes_of(std::size_t block) {
    if (laid_out_ != block) cut_.lay_out(block, levels_.node_ranges);
    laid_out_ = block;
    return levels_.node_ranges;
  }
  // The bytes of the range of `node` that the rank `owner` of each node owns.
  [[nodiscard]] Range run(std::size_t block, std::size_t node, std::size_t owner) {
    return cut_.run(block, node, nodes_of(block)[node], owner);
  }
  [[nodiscard]] std::size_t run_bytes(std::size_t block, std::size_t node, std::size_t owner) {
    if (cut_.runs_are_pieces()) return cut_.piece({node, owner}, block).size();
    return run(block, node, owner).size();
  }
  // The runs of the ranks of this node become their shares of an operation there.
  void add_runs(std::size_t block, std::size_t node, Posted& on_node) {
    for (std::size_t r = 0; r < levels_.members_here().size(); ++r) {
      on_node.row_bytes_of.push_back(run_bytes(block, node, r));
    }
  }
  [[nodiscard]] Range own_piece(std::size_t block) const noexcept {
    return cut_.piece({levels_.node, levels_.node_rank}, block);
  }

  [[nodiscard]] Block row(std::byte* data, std::size_t bytes) const noexcept {
    return row_of(data, posted_.fingerprint.type, bytes);
  }
  // Divides scratch into an area for each block under way, of `bytes` rounded up to whole lines.
  void take_scratch(std::size_t bytes) {
    slot_bytes_ = whole_lines(bytes);
    scratch_ = levels_.scratch.take(std::min(shape.blocks, shape.under_way) * slot_bytes_);
  }
  [[nodiscard]] std::byte* slot(std::size_t block) const noexcept {
    return scratch_.data() + block % shape.under_way * slot_bytes_;
  }
  // Calls copy(member, bytes of its share, their place in the slot) for the pieces that stand in
  // the slot of a block, node by node.
  template <typename Copy>
  void for_packed(std::size_t block, const Copy& copy) const {
    for_pieces(group_.team, [&](Pieces& pieces) {
      for (std::size_t n = 0; n < levels_.nodes.size(); ++n) {
        for (std::size_t r = 0; r < levels_.nodes[n].size(); ++r) {
          const Range piece = cut_.piece({n, r}, block);
          std::byte* const packed = slot(block) + pieces.bytes();
          pieces.next(piece.size(), [&](const Range& part) {
            copy(levels_.nodes[n][r], Range{piece.begin + part.begin, piece.begin + part.end},
                 packed + part.begin);
          });
        }
      }
    });
  }

  SharesCut cut_;

 private:
  static constexpr std::size_t nothing = ~std::size_t{0};
  std::size_t laid_out_ = nothing;
  std::size_t slot_bytes_ = 0;
  std::span<std::byte> scratch_;
};

// The shares of all nodes lie side by side in the output, or in scratch.
class HierarchicalAllgather final : public HierarchicalShares {
 public:
  HierarchicalAllgather(Group& group, const Posted& posted)
      : HierarchicalShares(group, posted, posted.output.bytes()) {
    shape.after = cut_.single() ? 1 : levels_.nodes.size() - 1;
    if (shape.blocks > 0 && !cut_.in_place()) take_scratch(nodes_of(0).back().end);
  }

 private:
  [[nodiscard]] Block gathered(std::size_t block, const Range& range) const {
    if (cut_.in_place()) return part_of(posted_.output, range);
    return row(slot(block) + range.begin, range.size());
  }
  void describe_before(std::size_t block, std::size_t part, Posted& on_node) override;
  bool describe_exchange(std::size_t block, Posted& exchange) override;
  void describe_after(std::size_t block, std::size_t part, Posted& on_node) override;
  void finish(std::size_t block) override;
};

// Only this rank's own piece is packed.
void HierarchicalAllgather::describe_before(std::size_t block, std::size_t /*part*/,
                                            Posted& on_node) {
  const Range range = nodes_of(block)[levels_.node];
  const Range piece = own_piece(block);
  cut_.pieces_of(levels_.node, block, on_node.row_bytes_of);
  on_node.input = part_of(posted_.input, piece);
  on_node.output = gathered(block, range);
  if (cut_.in_place()) return;
  const auto before = std::span(on_node.row_bytes_of).first(levels_.node_rank);
  const std::size_t begin = std::accumulate(before.begin(), before.end(), range.begin);
  const Block packed = gathered(block, {begin, begin + piece.size()});
  copy_from_rows(group_.team, packed.data, posted_.input, piece.begin, piece.size());
  on_node.input = as_const_block(packed);
}

// In place: an owner sends its run of its node's shares from where it wants the others'.
bool HierarchicalAllgather::describe_exchange(std::size_t block, Posted& exchange) {
  std::size_t bytes = 0;
  for (std::size_t n = 0; n < levels_.nodes.size(); ++n) {
    const Range range = run(block, n, levels_.node_rank);
    exchange.received_at.push_back(range.begin);
    exchange.row_bytes_of.push_back(range.size());
    bytes += range.size();
  }
  exchange.input = as_const_block(gathered(block, run(block, levels_.node, levels_.node_rank)));
  exchange.output = gathered(block, {0, nodes_of(block).back().end});
  return bytes > 0;
}

// A leader that has exchanged everything passes it on at once; else an operation for each other
// node gathers the runs of its shares.
void HierarchicalAllgather::describe_after(std::size_t block, std::size_t part, Posted& on_node) {
  const std::vector<Range>& ranges = nodes_of(block);
  if (cut_.single()) {
    on_node.fingerprint.collective = Collective::broadcast;
    on_node.fingerprint.root = 0;
    on_node.output = gathered(block, {ranges.front().begin, ranges.back().end});
    on_node.input = as_const_block(on_node.output);
    return;
  }
  const std::size_t from = part < levels_.node ? part : part + 1;
  on_node.input = as_const_block(gathered(block, run(block, from, levels_.node_rank)));
  on_node.output = gathered(block, ranges[from]);
  add_runs(block, from, on_node);
}

void HierarchicalAllgather::finish(std::size_t block) {
  if (cut_.in_place()) return;
  for_packed(block, [&](std::size_t member, const Range& piece, std::byte* packed) {
    copy_into_rows(nullptr, column_of(posted_.output, posted_, member), piece.begin, packed,
                   piece.size());
  });
}

// The area of a block in scratch: what is packed of the input, the sums over this node of the runs
// that this rank owns, their sums over all nodes, and what is packed of the output.
class HierarchicalReduceScatter final : public HierarchicalShares {
 public:
  HierarchicalReduceScatter(Group& group, const Posted& posted);

 private:
  void describe_before(std::size_t block, std::size_t part, Posted& on_node) override;
  bool describe_exchange(std::size_t block, Posted& exchange) override;
  void describe_after(std::size_t block, std::size_t part, Posted& on_node) override;
  void finish(std::size_t block) override;

  void pack(std::size_t block) const;
  [[nodiscard]] std::size_t owned_bytes(std::size_t block, std::size_t nodes);
  [[nodiscard]] Block final_sums(std::size_t block);
  [[nodiscard]] Block own_sums(std::size_t block) const;

  bool direct_;  // owners reduce straight into their own output
  std::size_t input_bytes_ = 0;
  std::size_t sums_bytes_ = 0;
};

HierarchicalReduceScatter::HierarchicalReduceScatter(Group& group, const Posted& posted)
    : HierarchicalShares(group, posted, posted.input.bytes()),
      direct_(cut_.runs_are_pieces() && posted.output.dense()) {
  const std::size_t nodes = levels_.nodes.size();
  shape.before = cut_.single() ? 1 : nodes;
  shape.after = cut_.runs_are_pieces() ? 0 : 1;
  if (shape.blocks == 0) return;
  if (!cut_.in_place()) input_bytes_ = whole_lines(nodes_of(0).back().end);
  // A run of a later block can be longer than that of the first by a line.
  sums_bytes_ = whole_lines(owned_bytes(0, nodes) + nodes * cache_line_bytes);
  take_scratch(input_bytes_ + 2 * sums_bytes_ + own_piece(0).size() + cache_line_bytes);
}

// The bytes that this rank owns of the runs of the first `nodes` nodes.
std::size_t HierarchicalReduceScatter::owned_bytes(std::size_t block, std::size_t nodes) {
  std::size_t bytes = 0;
  for (std::size_t n = 0; n < nodes; ++n) bytes += run_bytes(block, n, levels_.node_rank);
  return bytes;
}

void HierarchicalReduceScatter::pack(std::size_t block) const {
  for_packed(block, [&](std::size_t member, const Range& piece, std::byte* packed) {
    copy_from_rows(nullptr, packed, column_of(posted_.input, posted_, member), piece.begin,
                   piece.size());
  });
}

// One operation for each node's shares; for short data, one for all.
void HierarchicalReduceScatter::describe_before(std::size_t block, std::size_t part,
                                                Posted& on_node) {
  if (part == 0 && !cut_.in_place()) pack(block);
  const std::vector<Range>& ranges = nodes_of(block);
  Range range = ranges[part];
  if (cut_.single()) {
    range.end = ranges.back().end;
    on_node.row_bytes_of.assign(levels_.members_here().size(), 0);
    on_node.row_bytes_of[0] = range.size();
  } else {
    add_runs(block, part, on_node);
  }
  on_node.input = cut_.in_place() ? part_of(posted_.input, range)
                                  : as_const_block(row(slot(block) + range.begin, range.size()));
  on_node.output = row(slot(block) + input_bytes_ + owned_bytes(block, part),
                       on_node.row_bytes_of[levels_.node_rank]);
}

// Where the ring leaves the sums of this rank's run of its node's shares.
Block HierarchicalReduceScatter::final_sums(std::size_t block) {
  if (direct_) return own_sums(block);
  return row(slot(block) + input_bytes_ + sums_bytes_,
             run_bytes(block, levels_.node, levels_.node_rank));
}

// Where this rank's piece of its share is complete.
Block HierarchicalReduceScatter::own_sums(std::size_t block) const {
  const Range piece = own_piece(block);
  if (posted_.output.dense()) return part_of(posted_.output, piece);
  return row(slot(block) + input_bytes_ + 2 * sums_bytes_, piece.size());
}

bool HierarchicalReduceScatter::describe_exchange(std::size_t block, Posted& exchange) {
  for (std::size_t n = 0; n < levels_.nodes.size(); ++n) {
    exchange.row_bytes_of.push_back(run_bytes(block, n, levels_.node_rank));
  }
  const std::size_t bytes = owned_bytes(block, levels_.nodes.size());
  exchange.input = as_const_block(row(slot(block) + input_bytes_, bytes));
  exchange.output = final_sums(block);
  return bytes > 0;
}

// Each owner has a run of the node's shares, each rank of the node wants its piece of them.
void HierarchicalReduceScatter::describe_after(std::size_t block, std::size_t /*part*/,
                                               Posted& on_node) {
  on_node.fingerprint.collective = Collective::alltoallv;
  on_node.input = as_const_block(final_sums(block));
  on_node.output = own_sums(block);
  const Range owned = run(block, levels_.node, levels_.node_rank);
  Range own{};
  Range piece{0, nodes_of(block)[levels_.node].begin};
  on_node.sent_at.push_back(0);
  for (std::size_t r = 0; r < levels_.members_here().size(); ++r) {
    piece = {piece.end, piece.end + cut_.piece({levels_.node, r}, block).size()};
    if (r == levels_.node_rank) own = piece;
    on_node.sent_at.push_back(on_node.sent_at.back() + overlap(owned, piece).size());
  }
  on_node.received_at.push_back(0);
  for (std::size_t r = 0; r < levels_.members_here().size(); ++r) {
    const Range theirs = run(block, levels_.node, r);
    on_node.received_at.push_back(on_node.received_at.back() + overlap(theirs, own).size());
  }
}

void HierarchicalReduceScatter::finish(std::size_t block) {
  if (posted_.output.dense()) return;
  const Block sums = cut_.runs_are_pieces() ? final_sums(block) : own_sums(block);
  copy_into_rows(group_.team, posted_.output, own_piece(block).begin, sums.data,
                 own_piece(block).size());
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
