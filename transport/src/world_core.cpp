#include "world_core.hpp"

#include <poll.h>

#include <algorithm>
#include <cstring>
#include <new>
#include <utility>

#include "arena_core.hpp"
#include "communicator_core.hpp"
#include "describe.hpp"
#include "shm/doorbell.hpp"

namespace rondo::transport {

WorldCore::WorldCore(int rank, std::vector<Peer> peers, bool oversubscribed, WorldOptions options)
    : rank_(rank),
      peers_(std::move(peers)),
      oversubscribed_(oversubscribed),
      options_(std::move(options)),
      arena_(std::make_unique<ArenaCore>(peers_[static_cast<std::size_t>(rank)].memory)) {
  options_.small_bytes = std::min(options_.small_bytes, shm::bulk_bytes);
  for (const Peer& peer : peers_) infos_.push_back(peer.info);
}

WorldCore::~WorldCore() {
  // Release: whoever sees this rank gone sees all that it published before.
  header().left.store(1, std::memory_order_release);
  for (const Peer& peer : peers_) shm::ring(peer.memory->header());
}

std::shared_ptr<CommunicatorCore> WorldCore::make_world_communicator() {
  Group group;
  group.rank = rank_;
  for (std::size_t r = 0; r < peers_.size(); ++r) {
    shm::RankMemory* memory = peers_[r].memory.get();
    group.members.push_back({.world_rank = static_cast<int>(r),
                             .memory = memory,
                             .block = &memory->block(shm::RankMemory::world_block)});
  }
  return std::make_shared<CommunicatorCore>(shared_from_this(), std::move(group),
                                            shm::RankMemory::world_block, shm::slot_count);
}

void WorldCore::add(CommunicatorCore& communicator) { communicators_.push_back(&communicator); }

void WorldCore::remove(CommunicatorCore& communicator) noexcept {
  std::erase(communicators_, &communicator);
}

bool WorldCore::progress() {
  bool moved = false;
  for (CommunicatorCore* communicator : communicators_) moved = communicator->progress() || moved;
  return moved;
}

WorldCore::Offer WorldCore::offer_block() {
  const auto is_free = [](const Retired& retired) {
    // Acquire: the members' last reads of this block come before it is written again.
    return std::ranges::all_of(retired.members, [&](const shm::ControlBlock* member) {
      return member->consumed.load(std::memory_order_acquire) >= retired.last;
    });
  };
  const auto found = std::ranges::find_if(retired_, is_free);
  if (found != retired_.end()) {
    const Offer offer{.block = found->block, .last = found->last};
    retired_.erase(found);
    return offer;
  }
  shm::RankMemory& memory = *peer(rank_).memory;
  const std::uint64_t block = shm::append(memory.control(), sizeof(shm::ControlBlock));
  ::new (memory.control().base() + block) shm::ControlBlock;
  return {.block = block, .last = 0};
}

void WorldCore::retire(const CommunicatorCore& communicator) {
  Retired retired{
      .block = communicator.block(), .last = communicator.last_sequence(), .members = {}};
  for (const Member& member : communicator.group().members) {
    retired.members.push_back(member.block);
  }
  retired_.push_back(std::move(retired));
}

void WorldCore::abort(std::string_view reason) noexcept {
  if (abort_begun_.exchange(true)) return;
  shm::RankHeader& mine = header();
  const std::size_t length = std::min(reason.size(), mine.abort_reason.size() - 1);
  std::memcpy(mine.abort_reason.data(), reason.data(), length);
  mine.abort_reason[length] = '\0';
  // Release: the reason comes before the word.
  mine.aborted.store(1, std::memory_order_release);
  for (const Peer& peer : peers_) shm::ring(peer.memory->header());
}

std::optional<Error> WorldCore::aborted() const {
  for (std::size_t r = 0; r < peers_.size(); ++r) {
    const shm::RankHeader& theirs = peers_[r].memory->header();
    // Acquire: pairs with the release in abort().
    if (theirs.aborted.load(std::memory_order_acquire) == 0) continue;
    const auto rank = static_cast<int>(r);
    return Error(
        Errc::aborted, name_rank(*this, rank) + " aborted the job: " + theirs.abort_reason.data(),
        {.rank = rank, .pid = peers_[r].info.pid, .host = peers_[r].info.host, .operation = {}});
  }
  return std::nullopt;
}

bool WorldCore::gone(int rank) const noexcept {
  const Peer& other = peer(rank);
  // Acquire: what the peer published before it left is read after this.
  if (other.memory->header().left.load(std::memory_order_acquire) != 0) return true;
  if (!other.process) return false;
  pollfd entry{.fd = other.process->get(), .events = POLLIN, .revents = 0};
  return ::poll(&entry, 1, 0) > 0;
}

}  // namespace rondo::transport
