// The rank at fault in a job that stalls is found by following the wait-for graph from those that
// somebody waits for in vain, until a rank is reached that waits for nobody. Lists are cut to
// `most_awaited` ranks when they are sent, because a rank may wait for thousands. So the search
// continues with all ranks when a list may have been cut and the others have led nowhere.

#include "verdict/wait_graph.hpp"

#include <algorithm>
#include <iterator>
#include <numeric>

#include "base/pack.hpp"

namespace rondo::transport {

void WaitGraph::set(int rank, std::span<const int> awaited) {
  if (!has(rank)) return;
  std::vector<int>& known = awaited_[static_cast<std::size_t>(rank)];
  known.clear();
  std::ranges::copy_if(awaited, std::back_inserter(known), [&](int other) { return has(other); });
}

std::vector<int> WaitGraph::all_ranks() const {
  std::vector<int> ranks(awaited_.size());
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

// Breadth first, so that of several the one is named that fewest others stand between.
int WaitGraph::fault(std::span<const int> missing) const {
  std::vector<int> reached;
  std::vector<bool> seen(awaited_.size(), false);
  const auto reach = [&](std::span<const int> ranks) {
    for (const int rank : ranks) {
      if (!has(rank) || seen[static_cast<std::size_t>(rank)]) continue;
      seen[static_cast<std::size_t>(rank)] = true;
      reached.push_back(rank);
    }
  };
  reach(missing);
  bool any_cut = missing.size() >= most_awaited;
  for (std::size_t i = 0; i < reached.size(); ++i) {
    const std::vector<int>& awaited = awaited_[static_cast<std::size_t>(reached[i])];
    if (awaited.empty()) return reached[i];
    reach(awaited);
    any_cut = any_cut || awaited.size() >= most_awaited;
    if (any_cut && i + 1 == reached.size()) reach(all_ranks());
  }
  return reached.empty() ? -1 : reached.front();
}

std::string encode_ranks(std::span<const int> ranks) {
  const auto first = ranks.first(std::min(ranks.size(), most_awaited));
  return wire::pack(std::vector<std::int32_t>(first.begin(), first.end()));
}

std::vector<int> decode_ranks(std::string_view text) {
  std::vector<std::int32_t> ranks;
  if (!wire::unpack(text, ranks) || ranks.size() > most_awaited) return {};
  return ranks;
}

}  // namespace rondo::transport
