// A cut is right when its parts, taken in their order, follow each other without a gap: then no
// byte is left out and none is exchanged twice.

#include "support/hierarchy_cuts.hpp"

#include <algorithm>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "collective/algorithms.hpp"
#include "collective/blocks.hpp"
#include "collective/hierarchical/hierarchical.hpp"

namespace rondo::test {
namespace {

using transport::Hierarchy;
using transport::HierarchyPlan;
using transport::Posted;
using transport::Range;
using transport::SharesCut;
using Members = std::vector<std::vector<std::size_t>>;  // of each node

// Parts that are to cover [begin, end) in their order.
class Cover {
 public:
  Cover(std::string what, const Range& whole) : what_(std::move(what)), whole_(whole) {
    at_ = whole.begin;
  }

  void add(const Range& part) {
    if (part.size() == 0) return;
    if (part.begin != at_) fail("a part begins at " + std::to_string(part.begin));
    at_ = part.end;
  }
  void finish() const {
    if (at_ != whole_.end) fail("the parts end");
  }

 private:
  [[noreturn]] void fail(const std::string& how) const {
    throw std::runtime_error(what_ + ": " + how + ", where byte " + std::to_string(at_) + " of [" +
                             std::to_string(whole_.begin) + ", " + std::to_string(whole_.end) +
                             ") is next");
  }

  std::string what_;
  Range whole_;
  std::size_t at_ = 0;
};

// All divisions of the ranks into nodes of equal size.
std::vector<std::size_t> node_counts(std::size_t ranks) {
  std::vector<std::size_t> counts;
  for (std::size_t nodes = 1; nodes <= ranks; ++nodes) {
    if (ranks % nodes == 0) counts.push_back(nodes);
  }
  return counts;
}

Members adjacent(std::size_t ranks, std::size_t nodes) {
  Members members(nodes);
  for (std::size_t r = 0; r < ranks; ++r) members[r / (ranks / nodes)].push_back(r);
  return members;
}

Members interleaved(std::size_t ranks, std::size_t nodes) {
  Members members(nodes);
  for (std::size_t r = 0; r < ranks; ++r) members[r % nodes].push_back(r);
  return members;
}

// Nodes of 1, 2 and 3 ranks in turn.
Members uneven(std::size_t ranks) {
  Members members;
  for (std::size_t r = 0; r < ranks;) {
    const std::size_t end = std::min(ranks, r + 1 + members.size() % 3);
    members.emplace_back();
    while (r < end) members.back().push_back(r++);
  }
  return members;
}

std::vector<Members> layouts(std::size_t ranks) {
  std::vector<Members> all{uneven(ranks)};
  for (const std::size_t nodes : node_counts(ranks)) {
    all.push_back(adjacent(ranks, nodes));
    if (nodes > 1 && nodes < ranks) all.push_back(interleaved(ranks, nodes));
  }
  return all;
}

void check(const HierarchyPlan& plan, std::size_t bytes, std::size_t members, std::size_t nodes) {
  const std::size_t longest = HierarchyPlan::cut(bytes, plan.shards(), nodes);
  Cover blocks("an array of " + std::to_string(bytes) + " bytes", {0, bytes});
  for (std::size_t block = 0; block < plan.blocks(); ++block) {
    const Range whole = plan.block(block);
    blocks.add(whole);
    Cover shards("block " + std::to_string(block), whole);
    for (std::size_t rank = 0; rank < members; ++rank) {
      const Range shard = plan.shard(block, rank);
      shards.add(shard);
      if (shard.size() > longest) throw std::runtime_error("a shard is too long");
    }
    shards.finish();
  }
  blocks.finish();
}

// A share of so many bytes for each rank; none of them for some, where they are unequal.
Posted shares_of(std::size_t ranks, std::size_t bytes, bool equal) {
  Posted posted;
  posted.input.rows = 1;
  if (equal) posted.row_bytes_each = bytes;
  for (std::size_t r = 0; !equal && r < ranks; ++r) {
    posted.row_bytes_of.push_back(bytes * (r % 4) / 2 / 4 * 4);
  }
  return posted;
}

// Checks that the blocks hold the pieces of each rank's share, one behind the other.
void check_pieces(const SharesCut& cut, const Hierarchy& levels, const Posted& posted) {
  for (std::size_t n = 0; n < levels.nodes.size(); ++n) {
    for (std::size_t r = 0; r < levels.nodes[n].size(); ++r) {
      const std::size_t share = posted.share_row_bytes(levels.nodes[n][r]);
      Cover pieces("the share of rank " + std::to_string(levels.nodes[n][r]), {0, share});
      for (std::size_t block = 0; block < cut.blocks(); ++block) {
        pieces.add(cut.piece({n, r}, block));
      }
      pieces.finish();
    }
  }
}

// Checks that the ranks' runs cover each node's range, and that a range holds its node's pieces.
void check_runs(const SharesCut& cut, const Hierarchy& levels, std::size_t block) {
  std::vector<Range> ranges;
  cut.lay_out(block, ranges);
  for (std::size_t n = 0; n < levels.nodes.size(); ++n) {
    const std::string what = "block " + std::to_string(block) + ", node " + std::to_string(n);
    std::size_t bytes = 0;
    std::vector<std::size_t> pieces;
    cut.pieces_of(n, block, pieces);
    for (std::size_t r = 0; r < levels.nodes[n].size(); ++r) {
      const std::size_t piece = cut.piece({n, r}, block).size();
      if (pieces.at(r) != piece) throw std::runtime_error(what + ": pieces of different sizes");
      bytes += piece;
    }
    if (bytes != ranges[n].size()) throw std::runtime_error(what + ": its range is not its pieces");
    Cover runs(what, ranges[n]);
    for (std::size_t owner = 0; owner < levels.most_members; ++owner) {
      const Range run = cut.run(block, n, ranges[n], owner);
      if (cut.runs_are_pieces() && run.size() != pieces.at(owner)) {
        throw std::runtime_error(what + ": a rank does not own its own piece");
      }
      runs.add(run);
    }
    runs.finish();
  }
}

void check(const Hierarchy& levels, const Posted& posted, bool single) {
  const SharesCut cut(levels, posted, single);
  check_pieces(cut, levels, posted);
  for (std::size_t block = 0; block < cut.blocks(); ++block) {
    check_runs(cut, levels, block);
  }
}

// The ranks on the first node are enough: a cut is the same on all, but for whose part is the own.
Hierarchy hierarchy_of(const Members& members) {
  Hierarchy levels;
  levels.arrange(members, members.front().front());
  return levels;
}

}  // namespace

SimulatedTraffic check_cuts_of_one_array(std::size_t ranks) {
  SimulatedTraffic checked;
  for (const std::size_t nodes : node_counts(ranks)) {
    const std::size_t members = ranks / nodes;
    for (const std::size_t bytes :
         {std::size_t{4}, std::size_t{4096} + 4, (std::size_t{33} << 20U) + 12}) {
      check(HierarchyPlan(bytes, members, nodes), bytes, members, nodes);
      for (const std::size_t lead : {std::size_t{0}, members - 1}) {
        check(HierarchyPlan(bytes, 1, nodes, lead), bytes, members, nodes);
      }
      checked.operations += 3;
    }
  }
  return checked;
}

SimulatedTraffic check_cuts_of_shares(std::size_t ranks) {
  SimulatedTraffic checked;
  for (const Members& members : layouts(ranks)) {
    const Hierarchy levels = hierarchy_of(members);
    for (const std::size_t total : {std::size_t{64} << 10U, std::size_t{96} << 20U}) {
      for (const bool equal : {true, false}) {
        const Posted posted = shares_of(ranks, (total / ranks + 3) / 4 * 4, equal);
        for (const bool single : {true, false}) check(levels, posted, single);
        checked.operations += 2;
      }
    }
  }
  return checked;
}

}  // namespace rondo::test
