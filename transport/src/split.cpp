// How a communicator is made from another.

#include <algorithm>
#include <cstdint>
#include <stdexcept>
#include <utility>
#include <vector>

#include "communicator_core.hpp"
#include "world_core.hpp"

namespace rondo::transport {
namespace {

// What each rank tells the others: its wish, and the control block that it offers.
struct Wish {
  std::int64_t color;
  std::int64_t key;
  std::int64_t block;
  std::int64_t last;
};

Group make_group(const Group& parent, const WorldCore& world, const std::vector<Wish>& wishes) {
  std::vector<std::size_t> order;
  const std::int64_t color = wishes[parent.index()].color;
  for (std::size_t r = 0; r < wishes.size(); ++r) {
    if (wishes[r].color == color) order.push_back(r);
  }
  std::ranges::sort(order, {}, [&](std::size_t r) { return std::pair(wishes[r].key, r); });
  Group group;
  for (const std::size_t r : order) {
    if (r == parent.index()) group.rank = group.size();
    const Member& member = parent.members[r];
    group.members.push_back(
        {.world_rank = member.world_rank,
         .memory = member.memory,
         .block = &world.peer(member.world_rank)
                       .memory->block(static_cast<std::uint64_t>(wishes[r].block))});
  }
  return group;
}

std::uint64_t first_sequence(const std::vector<Wish>& wishes, std::int64_t color) {
  std::int64_t last = 0;
  for (const Wish& wish : wishes) {
    if (wish.color == color) last = std::max(last, wish.last);
  }
  return static_cast<std::uint64_t>(last) + shm::slot_count;
}

}  // namespace

std::shared_ptr<CommunicatorCore> CommunicatorCore::split(int color, int key) {
  if (color < 0) throw std::invalid_argument("rondo::transport: split: color is negative");
  const WorldCore::Offer offer = world_->offer_block();
  const Wish mine{.color = color,
                  .key = key,
                  .block = static_cast<std::int64_t>(offer.block),
                  .last = static_cast<std::int64_t>(offer.last)};
  std::vector<Wish> wishes(group_.count());
  const ConstBlock in{reinterpret_cast<const std::byte*>(&mine), ElementType::i64, 1, sizeof mine,
                      sizeof mine};
  const std::size_t bytes = wishes.size() * sizeof(Wish);
  allgather(in, {reinterpret_cast<std::byte*>(wishes.data()), ElementType::i64, 1, bytes, bytes},
            {})
      .wait();

  Group group = make_group(group_, *world_, wishes);
  const std::uint64_t first = first_sequence(wishes, color);
  shm::ControlBlock& block = group.mine();
  // Relaxed: the barrier publishes them. Nobody else reads the block before it.
  block.consumed.store(first - 1, std::memory_order_relaxed);
  block.staged_filled.store(0, std::memory_order_relaxed);
  block.staged_reduced.store(0, std::memory_order_relaxed);
  block.staged_read.store(0, std::memory_order_relaxed);
  barrier().wait();
  return std::make_shared<CommunicatorCore>(world_, std::move(group), offer.block, first);
}

}  // namespace rondo::transport
