// Means of whole models over ranks, in training by averages.
//
// Several ranks of a replica may hold the same parameters, and update them alike; each averages its
// copy over the ranks that stand where it does in the other replicas. The copies keep the same bits
// if all these groups sum in the same order. They do not where nodes cut them in different ways, or
// where the ranks' arrays are cut in different ways because their slices of other layers differ in
// size. There the first holder sends the others its mean.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <utility>
#include <vector>

#include <rondo/sync/scheme_base.hpp>
#include <rondo/transport/communicator.hpp>
#include <rondo/transport/world.hpp>

#include "flat/flat.hpp"

namespace rondo::sync {
namespace {

/// A number for the order in which `outer` sums an array of `packed` elements, and for where in it
/// copies lie.
std::uint64_t order_of_sums(const Replica& replica, transport::Communicator& outer,
                            std::size_t packed) {
  const std::int32_t own =
      replica.world->ranks()[static_cast<std::size_t>(replica.world->rank())].node;
  std::vector<std::int32_t> nodes(static_cast<std::size_t>(outer.size()));
  outer.allgather(std::span(&own, 1), std::span(nodes)).wait();
  std::uint64_t hash = 14'695'981'039'346'656'037U;  // FNV-1a
  const auto add = [&](std::uint64_t value) { hash = (hash ^ value) * 1'099'511'628'211U; };
  std::map<std::int32_t, std::uint64_t> seen;  // nodes, in the order in which they come
  for (const std::int32_t node : nodes) add(seen.try_emplace(node, seen.size()).first->second);
  add(packed);
  for (const Slices::Copy& copy : replica.slices.copies) {
    add(copy.offset);
    add(copy.size);
  }
  return hash;
}

// Collective, and the same for all ranks of all replicas.
bool copies_may_differ(const Replica& replica, std::size_t packed) {
  if (replica.slices.over == nullptr || replica.layers.empty()) return false;
  transport::Communicator* const outer = replica.layers.front().groups.outer;
  if (outer == nullptr || outer->size() == 1) return false;
  const std::uint64_t own = order_of_sums(replica, *outer, packed);
  std::vector<std::uint64_t> all(static_cast<std::size_t>(replica.slices.over->size()));
  replica.slices.over->allgather(std::span(&own, 1), std::span(all)).wait();
  return std::ranges::any_of(all, [own](std::uint64_t other) { return other != own; });
}

}  // namespace

PackedMean::PackedMean(const Replica& replica, std::size_t state_size)
    : replica_(replica),
      memory_(replica.parameters.size() + replica.statistics.size() + state_size + 1, 0.0F,
              &replica.world->arena()),
      packed_(memory_),
      rounded_(&replica.world->arena()) {
  copies_may_differ_ = copies_may_differ(replica, memory_.size());
}

void PackedMean::pack(std::span<const float> parameters, std::span<const float> start,
                      std::span<const float> state, float weight) {
  packed_ = std::span(memory_).first(replica_.parameters.size() + replica_.statistics.size() +
                                     state.size() + 1);
  if (start.empty()) {
    std::ranges::copy(parameters, displacement().begin());
  } else {
    flat::subtract(displacement(), parameters, start);
  }
  std::ranges::copy(replica_.statistics, statistics().begin());
  std::ranges::copy(state, this->state().begin());
  weigh(weight);
  packed_.back() = weight;
}

void PackedMean::add_unsent(std::span<const float> unsent) {
  if (!unsent.empty()) flat::add(displacement(), unsent);
}

// In bf16 the displacement goes by itself: counts of samples, statistics and momenta need all bits.
void PackedMean::post(transport::Communicator& group, std::span<float> unsent) {
  ranks_ = group.size();
  rounds_ = !unsent.empty();
  if (!rounds_) {
    request_ = group.allreduce(packed_);
    return;
  }
  prepare_bf16();
  add_unsent(unsent);
  flat::round(rounded_, displacement());
  flat::widen(unsent, rounded_);
  flat::subtract(unsent, displacement(), unsent);
  request_ = group.allreduce(std::span(rounded_));
  rest_ = group.allreduce(packed_.subspan(rounded_.size()));
}

std::size_t PackedMean::bytes() const noexcept {
  const std::size_t all = packed_.size_bytes();
  return rounds_ ? all - rounded_.size() * (sizeof(float) - sizeof(transport::Bfloat16)) : all;
}

// Divided by what has arrived: the sum of the ranks' weights lies behind the values.
void PackedMean::wait() {
  if (ranks_ == 0) return;
  request_.wait();
  if (rounds_) {
    rest_.wait();
    flat::widen(displacement(), rounded_);
  }
  flat::scale(statistics(), static_cast<float>(1.0 / std::exchange(ranks_, 0)));
  if (has_weight()) weigh(static_cast<float>(1.0 / static_cast<double>(packed_.back())));
  equal_copies();
}

void PackedMean::equal_copies() {
  if (!copies_may_differ_) return;
  const auto send = [](const Slices::Copy& copy, std::span<float> values) {
    constexpr int first_holder = 0;
    copy.holders->broadcast(values.subspan(copy.offset, copy.size), first_holder).wait();
  };
  for (const Slices::Copy& copy : replica_.slices.copies) {
    const std::size_t size = replica_.parameters.size();
    send(copy, displacement());
    for (std::size_t array = 0; array < state().size(); array += size) {
      send(copy, state().subspan(array, size));
    }
  }
}

// A weight of exactly 1 is not multiplied by, so that equal shares cost nothing.
void PackedMean::weigh(float factor) {
  if (factor == 1.0F) return;
  flat::scale(displacement(), factor);
  flat::scale(state(), factor);
}

}  // namespace rondo::sync
