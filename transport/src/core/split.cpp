// How a communicator is made from another.

#include <algorithm>
#include <cstdint>
#include <stdexcept>
#include <utility>
#include <vector>

#include "core/communicator_core.hpp"
#include "core/make_communicator.hpp"
#include "core/world_core.hpp"

namespace rondo::transport {
namespace {

// What each rank tells the others: its wish, and what it offers.
struct SplitEntry {
  std::int64_t color;
  std::int64_t key;
  std::int64_t context;
  NewMember seat;
};

SplitEntry wish_of(WorldCore& world, int color, int key) {
  const WorldCore::Offer offer = world.offer_block();
  const WorldCore::Offer second = world.nodes() > 1 ? world.offer_block() : WorldCore::Offer{};
  return {.color = color,
          .key = key,
          .context = world.next_context(),
          .seat = {.world_rank = world.rank(),
                   .port = world.take_port(),
                   .block = offer.block,
                   .last = offer.last,
                   .up_block = second.block,
                   .up_last = second.last}};
}

Agreement agree(const std::vector<SplitEntry>& wishes, std::int64_t color) {
  std::vector<std::size_t> order;
  for (std::size_t r = 0; r < wishes.size(); ++r) {
    if (wishes[r].color == color) order.push_back(r);
  }
  std::ranges::sort(order, {}, [&](std::size_t r) { return std::pair(wishes[r].key, r); });
  std::int64_t context = 0;
  Agreement agreement;
  for (const std::size_t r : order) {
    agreement.seats.push_back(wishes[r].seat);
    context = std::max(context, wishes[r].context);
  }
  agreement.context = static_cast<std::uint32_t>(context);
  return agreement;
}

}  // namespace

std::shared_ptr<CommunicatorCore> CommunicatorCore::split(int color, int key) {
  if (color < 0) throw std::invalid_argument("rondo::transport: split: color is negative");
  const SplitEntry mine = wish_of(*world_, color, key);
  std::vector<SplitEntry> wishes(group_.count());
  constexpr std::size_t wish_bytes = sizeof(SplitEntry);
  const ConstBlock in{reinterpret_cast<const std::byte*>(&mine), ElementType::i64, 1, wish_bytes,
                      wish_bytes};
  const std::size_t bytes = wishes.size() * wish_bytes;
  const Block out{reinterpret_cast<std::byte*>(wishes.data()), ElementType::i64, 1, bytes, bytes};
  post(prepare_allgather(in, out, {})).wait();

  const Agreement agreement = agree(wishes, color);
  prepare_blocks(*world_, agreement);
  post(prepare_barrier()).wait();
  auto made = make_communicator(*world_, agreement);
  if (world_->nodes() > 1 && !made->spans()) {
    world_->withdraw({.block = mine.seat.up_block, .last = mine.seat.up_last});
  }
  return made;
}

}  // namespace rondo::transport
