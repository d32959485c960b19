#include "core/world_core.hpp"

#include <poll.h>

#include <algorithm>
#include <cstring>
#include <new>
#include <utility>

#include "api/arena_core.hpp"
#include "core/communicator_core.hpp"
#include "core/describe.hpp"
#include "core/make_communicator.hpp"
#include "shm/doorbell.hpp"

namespace rondo::transport {

WorldCore::WorldCore(Membership membership, WorldOptions options)
    : my_(std::move(membership)),
      options_(std::move(options)),
      arena_(std::make_unique<ArenaCore>(peer(my_.rank).memory,
                                         [this](std::span<std::byte> memory) {
                                           if (my_.fabric) my_.fabric->add_memory(memory);
                                         })),
      recorder_(peer(my_.rank).recorder, my_.rank, static_cast<int>(my_.peers.size()),
                peer(my_.rank).info.host),
      dumped_for_(my_.peers.size()),
      news_(my_.peers.size()) {
  options_.small_bytes = std::min(options_.small_bytes, shm::bulk_bytes);
  for (const Peer& peer : my_.peers) {
    infos_.push_back(peer.info);
    nodes_ = std::max(nodes_, peer.info.node + 1);
    shares_its_node_ = shares_its_node_ || (&peer != &this->peer(my_.rank) &&
                                            peer.info.node == this->peer(my_.rank).info.node);
  }
  if (!my_.side_channel) return;
  my_.side_channel->watch([this](const rendezvous::News& news) {
    news_.hear(news);
    shm::ring(header());
  });
}

WorldCore::~WorldCore() {
  my_.fabric.reset();  // sends what is on its way
  if (my_.side_channel) {
    const std::vector<LastCollective> parts(last_parts_.begin(), last_parts_.end());
    my_.side_channel->tell(
        {.kind = rendezvous::News::Kind::left, .rank = my_.rank, .text = encode(parts)});
  }
  my_.side_channel.reset();  // nothing is heard any more
  // Release: whoever sees this rank gone sees all that it published before.
  header().left.store(1, std::memory_order_release);
  ring_all();
}

void WorldCore::ring_all() noexcept {
  for (const Peer& peer : my_.peers) {
    if (peer.memory) shm::ring(peer.memory->header());
  }
}

std::shared_ptr<CommunicatorCore> WorldCore::make_world_communicator() {
  static_cast<void>(take_port());  // the first, 0, as all ranks assume
  return make_communicator(*this, world_agreement(static_cast<int>(my_.peers.size())));
}

void WorldCore::add(CommunicatorCore& communicator) { communicators_.push_back(&communicator); }

void WorldCore::remove(CommunicatorCore& communicator) noexcept {
  std::erase(communicators_, &communicator);
}

void WorldCore::note_last_part(const LastCollective& part) {
  std::erase_if(last_parts_,
                [&](const LastCollective& old) { return old.context == part.context; });
  last_parts_.push_front(part);
  if (last_parts_.size() > most_last_parts) last_parts_.pop_back();
}

bool WorldCore::progress() {
  bool moved = false;
  if (my_.fabric) moved = my_.fabric->progress();
  if (my_.local) moved = my_.local->progress() || moved;
  for (CommunicatorCore* communicator : communicators_) moved = communicator->progress() || moved;
  hear_divergences();
  return moved;
}

void WorldCore::hear_divergences() {
  if (!my_.side_channel) return;
  for (const rendezvous::News& news : news_.take_diverged()) {
    for (CommunicatorCore* communicator : communicators_) communicator->hear_divergence(news);
    divergences_.push_back(news);
  }
}

void WorldCore::tell_divergence(std::uint32_t context, std::string_view text) noexcept {
  if (!my_.side_channel) return;
  my_.side_channel->tell({.kind = rendezvous::News::Kind::diverged,
                          .rank = my_.rank,
                          .context = context,
                          .text = std::string(text)});
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
  shm::RankMemory& memory = *peer(my_.rank).memory;
  const std::uint64_t block = shm::append(memory.control(), sizeof(shm::ControlBlock));
  ::new (memory.control().base() + block) shm::ControlBlock;
  return {.block = block, .last = 0};
}

std::uint16_t WorldCore::take_port() {
  if (const auto port = ports_.take()) return *port;
  throw Error(Errc::out_of_memory,
              "rank " + std::to_string(my_.rank) + " is in " + std::to_string(Ports::count) +
                  " communicators already, those that failed among them; end some of them before "
                  "another split");
}

void WorldCore::withdraw(const Offer& offer) {
  retired_.push_back({.block = offer.block, .last = offer.last, .members = {}});
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
  ring_all();
  if (my_.side_channel) {
    my_.side_channel->tell({.kind = rendezvous::News::Kind::aborted,
                            .rank = my_.rank,
                            .text = std::string(mine.abort_reason.data())});
  }
  recorder_.note_failure(Errc::aborted, "this rank aborted the job: " + std::string(reason));
  dump_own("this rank aborted the job");
}

Error WorldCore::abort_error(int rank, std::string_view reason) const {
  const RankInfo& info = peer(rank).info;
  return Error(Errc::aborted, name_rank(*this, rank) + " aborted the job: " + std::string(reason),
               {.rank = rank, .pid = info.pid, .host = info.host, .operation = {}});
}

std::optional<Error> WorldCore::aborted() const {
  for (std::size_t r = 0; r < my_.peers.size(); ++r) {
    if (!my_.peers[r].memory) continue;
    const shm::RankHeader& theirs = my_.peers[r].memory->header();
    // Acquire: pairs with the release in abort().
    if (theirs.aborted.load(std::memory_order_acquire) == 0) continue;
    return abort_error(static_cast<int>(r), theirs.abort_reason.data());
  }
  if (const auto news = news_.aborted()) return abort_error(news->rank, news->text);
  return std::nullopt;
}

bool WorldCore::left(int rank) const noexcept {
  if (news_.left(rank)) return true;
  const Peer& other = peer(rank);
  return other.memory && other.memory->header().left.load(std::memory_order_acquire) != 0;
}

bool WorldCore::gone(int rank) const noexcept {
  if (news_.gone(rank)) return true;
  const Peer& other = peer(rank);
  if (!other.memory) return false;
  // Acquire: what the peer published before it left is read after this.
  if (other.memory->header().left.load(std::memory_order_acquire) != 0) return true;
  if (!other.process) return false;
  pollfd entry{.fd = other.process->get(), .events = POLLIN, .revents = 0};
  return ::poll(&entry, 1, 0) > 0;
}

}  // namespace rondo::transport
