#include "base/copies.hpp"

#include <algorithm>
#include <map>
#include <ranges>

#include <rondo/transport/communicator.hpp>
#include <rondo/transport/world.hpp>

namespace rondo::sync {
namespace {

/// A number for the order in which `outer` sums the arrays of this rank. On one node that is the
/// order of ranks, however the arrays are cut.
std::uint64_t order_of_sums(const Replica& replica, transport::Communicator& outer) {
  const auto rank = static_cast<std::size_t>(replica.world->rank());
  const std::int32_t own = replica.world->ranks()[rank].node;
  std::vector<std::int32_t> nodes(static_cast<std::size_t>(outer.size()));
  outer.allgather(std::span(&own, 1), std::span(nodes)).wait();
  std::uint64_t hash = 14'695'981'039'346'656'037U;  // FNV-1a
  const auto add = [&](std::uint64_t value) { hash = (hash ^ value) * 1'099'511'628'211U; };
  std::map<std::int32_t, std::uint64_t> seen;  // nodes, in the order in which they come
  for (const std::int32_t node : nodes) add(seen.try_emplace(node, seen.size()).first->second);
  if (seen.size() == 1) return hash;
  for (const Layer& layer : replica.layers) add(layer.size);
  add(replica.statistics.size());
  return hash;
}

// The same on all ranks of all replicas, because ranks of an outer group have the same number.
bool orders_differ(const Replica& replica) {
  if (replica.slices.over == nullptr || replica.layers.empty()) return false;
  transport::Communicator* const outer = replica.layers.front().groups.outer;
  if (outer == nullptr || outer->size() == 1) return false;
  const std::uint64_t own = order_of_sums(replica, *outer);
  std::vector<std::uint64_t> all(static_cast<std::size_t>(replica.slices.over->size()));
  replica.slices.over->allgather(std::span(&own, 1), std::span(all)).wait();
  return std::ranges::any_of(all, [own](std::uint64_t other) { return other != own; });
}

bool is_summed_apart(std::span<const Layer> layers, const Slices::Copy& copy) {
  const auto layer = std::ranges::find_if(layers, [&](const Layer& each) {
    return copy.offset >= each.offset && copy.offset < each.offset + each.size;
  });
  return layer != layers.end() && layer->groups.inner == nullptr;
}

}  // namespace

Copies::Copies(const Replica& replica, Kind kind) {
  if (!orders_differ(replica)) return;
  copies_ = replica.slices.copies;
  if (kind == Kind::all) return;
  std::erase_if(copies_,
                [&](const Slices::Copy& copy) { return !is_summed_apart(replica.layers, copy); });
}

// The last first: of buckets, which go from the output side, each rank may have others.
void Copies::make_equal(std::span<float> values, std::size_t offset) const {
  constexpr int first_holder = 0;
  for (const Slices::Copy& copy : copies_ | std::views::reverse) {
    if (copy.offset < offset || copy.offset >= offset + values.size()) continue;
    copy.holders->broadcast(values.subspan(copy.offset - offset, copy.size), first_holder).wait();
  }
}

}  // namespace rondo::sync
