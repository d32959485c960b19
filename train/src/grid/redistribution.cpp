// Which box goes from which rank to which while the layout of an array changes. Every rank computes
// its own part of the plan from the two layouts alone: nothing is communicated.

#include <algorithm>
#include <cstddef>
#include <stdexcept>
#include <string>

#include <rondo/train/redistribution.hpp>

#include "grid/local_windows.hpp"

namespace rondo::train {
namespace {

/// Calls visit(sender, receiver, box) for everything that leaves a block. The sender is the holder
/// that has sent least so far. Every rank deals in the same order, so all agree without a message.
template <class Visit>
void deal(const Partition& from, int block, std::span<const Box> wanted, Visit visit) {
  const std::span<const int> holders = from.ranks_of(block);
  std::vector<std::int64_t> load(holders.size());
  const Box source = from.box(block);
  for (int receiver = 0; receiver < from.ranks(); ++receiver) {
    if (from.block_of(receiver) == block) continue;
    const Box box = intersection(source, wanted[static_cast<std::size_t>(receiver)]);
    if (box.empty()) continue;
    const auto least = std::ranges::min_element(load);
    *least += box.size();
    visit(holders[static_cast<std::size_t>(least - load.begin())], receiver, box);
  }
}

// A rank sends only of the block that it holds.
std::vector<Transfer> sends_of(const Partition& from, std::span<const Box> wanted, int rank) {
  std::vector<Transfer> sends;
  deal(from, from.block_of(rank), wanted, [&](int sender, int receiver, const Box& box) {
    if (sender == rank) sends.push_back({receiver, box});
  });
  return sends;
}

// If one rank alone holds a block it is the sender; else the dealing must be repeated to find it.
std::vector<Transfer> receives_of(const Partition& from, std::span<const Box> wanted, int rank) {
  std::vector<Transfer> receives;
  const Box& target = wanted[static_cast<std::size_t>(rank)];
  for (int block = 0; block < from.blocks(); ++block) {
    if (block == from.block_of(rank)) continue;
    const Box box = intersection(from.box(block), target);
    if (box.empty()) continue;
    if (from.holders() == 1) {
      receives.push_back({from.ranks_of(block).front(), box});
      continue;
    }
    deal(from, block, wanted, [&](int sender, int receiver, const Box& dealt) {
      if (receiver == rank) receives.push_back({sender, dealt});
    });
  }
  return receives;
}

/// By the peer's distance: upwards from `rank` (step 1), or downwards (step -1).
void sort_from(std::vector<Transfer>& transfers, int rank, int ranks, int step) {
  std::ranges::sort(transfers, {}, [=](const Transfer& transfer) {
    return (step * (transfer.peer - rank) + ranks) % ranks;
  });
}

std::int64_t elements_of(const std::vector<Transfer>& transfers) noexcept {
  std::int64_t elements = 0;
  for (const Transfer& transfer : transfers) elements += transfer.box.size();
  return elements;
}

void expect_alike(const Partition& from, const Partition& to) {
  if (from.extents() == to.extents() && from.ranks() == to.ranks()) return;
  throw std::invalid_argument("redistribution: partitions of different arrays or ranks");
}

}  // namespace

std::int64_t Redistribution::elements_sent() const noexcept { return elements_of(sends); }
std::int64_t Redistribution::elements_received() const noexcept { return elements_of(receives); }

// Sends begin with the next rank, receives with the previous one: at any time ranks are busy with
// different peers.
Redistribution redistribution(const Partition& from, std::span<const Box> wanted, int rank) {
  if (wanted.size() != static_cast<std::size_t>(from.ranks())) {
    throw std::invalid_argument("redistribution: " + std::to_string(wanted.size()) +
                                " boxes are wanted by " + std::to_string(from.ranks()) + " ranks");
  }
  Redistribution plan{
      .sends = sends_of(from, wanted, rank),
      .receives = receives_of(from, wanted, rank),
      .kept = intersection(from.box_of(rank), wanted[static_cast<std::size_t>(rank)])};
  sort_from(plan.sends, rank, from.ranks(), 1);
  sort_from(plan.receives, rank, from.ranks(), -1);
  return plan;
}

Redistribution redistribution(const Partition& from, const Partition& to, int rank) {
  expect_alike(from, to);
  return redistribution(from, to.boxes(), rank);
}

// Elements that the rank holds already are not sent, even if others hold them, too.
std::int64_t elements_received(const Partition& from, const Partition& to, int rank) {
  expect_alike(from, to);
  const Box target = to.box_of(rank);
  return target.size() - intersection(from.box_of(rank), target).size();
}

std::int64_t elements_moved(const Partition& from, const Partition& to) {
  std::int64_t elements = 0;
  for (int rank = 0; rank < from.ranks(); ++rank) elements += elements_received(from, to, rank);
  return elements;
}

std::int64_t elements_moved(const Partition& from, std::span<const Box> wanted) {
  std::int64_t elements = 0;
  for (int rank = 0; rank < from.ranks(); ++rank) {
    elements += redistribution(from, wanted, rank).elements_sent();
  }
  return elements;
}

// The holders of one block have computed the same sums, so the i-th holder of a block deals with
// the i-th holders of all others.
Redistribution halo_return(const Partition& home, std::span<const Box> computed, int rank) {
  if (computed.size() != static_cast<std::size_t>(home.ranks())) {
    throw std::invalid_argument("halo return: " + std::to_string(computed.size()) +
                                " boxes were computed by " + std::to_string(home.ranks()) +
                                " ranks");
  }
  const int mine = home.block_of(rank);
  const Box own = home.box(mine);
  const Box& sums = computed[static_cast<std::size_t>(rank)];
  const int holder = home.holder_index(rank);
  Redistribution plan{.kept = intersection(own, sums)};
  for (int block = 0; block < home.blocks(); ++block) {
    if (block == mine) continue;
    const int peer = home.ranks_of(block)[static_cast<std::size_t>(holder)];
    // This rank sends what it has computed of the peer's block, and receives what the peer has
    // computed of this rank's block.
    const Box there = intersection(home.box(block), sums);
    const Box here = intersection(own, computed[static_cast<std::size_t>(peer)]);
    if (!there.empty()) plan.sends.push_back({peer, there});
    if (!here.empty()) plan.receives.push_back({peer, here});
  }
  // Sums are added in the order of the receives, so it must not depend on timing.
  std::ranges::sort(plan.receives, {}, &Transfer::peer);
  return plan;
}

}  // namespace rondo::train
