#include "core/make_communicator.hpp"

#include <algorithm>
#include <utility>

#include "core/communicator_core.hpp"
#include "core/multi_node.hpp"
#include "core/world_core.hpp"

namespace rondo::transport {
namespace {

std::vector<NewMember> seats_of_node(const WorldCore& world, const std::vector<NewMember>& seats) {
  std::vector<NewMember> node;
  std::ranges::copy_if(seats, std::back_inserter(node),
                       [&](const NewMember& seat) { return world.same_node(seat.world_rank); });
  return node;
}

// The second block of each seat in the place of the first.
std::vector<NewMember> upper(std::vector<NewMember> seats) {
  for (NewMember& seat : seats) {
    seat.block = seat.up_block;
    seat.last = seat.up_last;
  }
  return seats;
}

std::uint64_t first_sequence(const std::vector<NewMember>& seats) {
  std::uint64_t last = 0;
  for (const NewMember& seat : seats) last = std::max(last, seat.last);
  return last + shm::slot_count;
}

Group group_of(const WorldCore& world, const std::vector<NewMember>& seats) {
  Group group;
  for (const NewMember& seat : seats) {
    if (seat.world_rank == world.rank()) group.rank = group.size();
    Member member{.world_rank = seat.world_rank, .port = seat.port};
    if (world.same_node(seat.world_rank)) {
      member.memory = world.peer(seat.world_rank).memory.get();
      member.block = &member.memory->block(seat.block);
    }
    group.members.push_back(member);
  }
  return group;
}

const NewMember& own_seat(const WorldCore& world, const std::vector<NewMember>& seats) {
  return *std::ranges::find(seats, world.rank(), &NewMember::world_rank);
}

void prepare(const WorldCore& world, const std::vector<NewMember>& seats) {
  shm::ControlBlock& block = world.peer(world.rank()).memory->block(own_seat(world, seats).block);
  // Relaxed: the barrier that follows publishes them. Nobody else reads the block before it.
  block.consumed.store(first_sequence(seats) - 1, std::memory_order_relaxed);
  block.staged_filled.store(0, std::memory_order_relaxed);
  block.staged_reduced.store(0, std::memory_order_relaxed);
  block.staged_read.store(0, std::memory_order_relaxed);
}

std::shared_ptr<CommunicatorCore> make_on_node(WorldCore& world,
                                               const std::vector<NewMember>& seats,
                                               std::uint32_t context) {
  return std::make_shared<CommunicatorCore>(world.shared_from_this(), group_of(world, seats),
                                            own_seat(world, seats).block, first_sequence(seats),
                                            context);
}

}  // namespace

void prepare_blocks(const WorldCore& world, const Agreement& agreement) {
  const std::vector<NewMember> node = seats_of_node(world, agreement.seats);
  prepare(world, node);
  if (node.size() < agreement.seats.size()) prepare(world, upper(node));
}

std::shared_ptr<CommunicatorCore> make_communicator(WorldCore& world, const Agreement& agreement) {
  world.use_context(agreement.context);
  const std::vector<NewMember> node = seats_of_node(world, agreement.seats);
  if (node.size() == agreement.seats.size()) {
    auto core = make_on_node(world, node, agreement.context);
    core->own_port();
    core->begin_recording();
    return core;
  }
  auto down = make_on_node(world, node, agreement.context);
  auto up = make_on_node(world, upper(node), agreement.context);
  auto core = std::make_shared<CommunicatorCore>(
      world.shared_from_this(), group_of(world, agreement.seats), CommunicatorCore::no_block,
      shm::slot_count, agreement.context);
  core->own_port();
  core->span_nodes(std::move(down), std::move(up));
  core->begin_recording();
  return core;
}

Agreement world_agreement(int ranks) {
  Agreement agreement;
  for (int rank = 0; rank < ranks; ++rank) {
    agreement.seats.push_back({.world_rank = rank,
                               .block = shm::RankMemory::world_block,
                               .last = 0,
                               .up_block = shm::RankMemory::world_up_block,
                               .up_last = 0});
  }
  return agreement;
}

}  // namespace rondo::transport
