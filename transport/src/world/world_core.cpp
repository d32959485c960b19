// A rank's World from the first progress to the mark that it has left: which communicators it
// drives, which control blocks it can offer for new ones, and what it knows of other ranks. Ranks
// of this node are known by their shared memory and their pidfd, others by what the side channel
// tells.

#include "world/world_core.hpp"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <new>
#include <stdexcept>
#include <utility>

#include "base/best_effort.hpp"
#include "memory/arena.hpp"
#include "memory/control_block.hpp"
#include "recorder/names.hpp"

namespace rondo::transport {

WorldCore::WorldCore(Membership membership, WorldOptions options)
    : lock_(options.threads == Threads::multiple || options.fabric.injects_delays()),
      my_(std::move(membership)),
      options_(std::move(options)),
      arena_(std::make_unique<ArenaCore>(
          peer(my_.rank).memory,
          [this](std::span<std::byte> memory) {
            if (my_.fabric) my_.fabric->add_memory(memory);
          },
          &lock_)),
      recorder_(peer(my_.rank).recorder, my_.rank, static_cast<int>(my_.peers.size()),
                peer(my_.rank).info.host),
      lacks_memory_(Errc::out_of_memory,
                    "rank " + std::to_string(my_.rank) + " has no memory left for an operation"),
      dumped_for_(my_.peers.size()),
      peer_status_(my_.peers.size()) {
  options_.small_bytes = std::min(options_.small_bytes, shm::bulk_bytes);
  const FabricOptions& fabric = options_.fabric;
  if (my_.fabric && fabric.injects_delays()) {
    my_.fabric = open_delayed_link(std::move(my_.fabric), fabric.injected_latency,
                                   fabric.injected_bytes_per_second, lock_);
  }
  for (const Peer& peer : my_.peers) {
    infos_.push_back(peer.info);
    nodes_ = std::max(nodes_, peer.info.node + 1);
    shares_its_node_ = shares_its_node_ || (&peer != &this->peer(my_.rank) &&
                                            peer.info.node == this->peer(my_.rank).info.node);
  }
  if (lock_.shared() && my_.fabric) {
    rings_ = shm::Descriptor(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    if (!rings_.valid()) {
      throw Error(Errc::out_of_memory, "rank " + std::to_string(my_.rank) +
                                           " has run out of descriptors for its threads");
    }
  }
  // From here on the side channel's thread calls. The ring wakes this rank if it sleeps in a wait.
  if (!my_.side_channel) return;
  my_.side_channel->watch([this](const StatusMessage& status) {
    peer_status_.update(status);
    shm::ring(header());
  });
}

// First the messages, then the word that this rank leaves, then the mark: peers that see the mark
// may count on all that came before.
WorldCore::~WorldCore() {
  event_descriptor_.reset();
  my_.fabric.reset();  // sends what is on its way; nobody holds the lock
  std::string last;
  if_memory_allows([&] {
    last = encode(std::vector<LastCollective>(last_collectives_.begin(), last_collectives_.end()));
  });
  tell(StatusMessage::Kind::left, std::move(last));
  my_.side_channel.reset();  // its thread calls this object no more
  // Release: a rank that sees the mark sees all that this one published before, also why it failed.
  header().left.store(1, std::memory_order_release);
  ring_all();
}

// Wakes the peers of the node that sleep; the others hear from the side channel.
void WorldCore::ring_all() noexcept {
  for (const Peer& peer : my_.peers) {
    if (peer.memory) shm::ring(peer.memory->header());
  }
}

// Communicators enter and leave by themselves, in their constructor and destructor.
void WorldCore::add(ProgressSource& communicator) { communicators_.push_back(&communicator); }

void WorldCore::remove(ProgressSource& communicator) noexcept {
  std::erase(communicators_, &communicator);
}

// The latest of the communicators with the same context counts.
void WorldCore::note_last_collective(const LastCollective& last) {
  std::erase_if(last_collectives_,
                [&](const LastCollective& old) { return old.context == last.context; });
  last_collectives_.push_front(last);
  if (last_collectives_.size() > max_last_collectives) last_collectives_.pop_back();
}

bool WorldCore::progress_of_communicators() {
  bool moved = false;
  for (ProgressSource* communicator : communicators_) moved = communicator->progress() || moved;
  return moved;
}

// Links before operations: what has arrived lets them move in the same pass. But between nodes
// operations come first, too: so what they begin with leaves together.
bool WorldCore::progress() {
  // Operations that end within a pass may wait for what they have posted.
  const WorldLock::Undivided whole(lock_);
  if (event_descriptor_) event_descriptor_->disarm();
  bool moved = false;
  if (my_.fabric) {
    moved = progress_of_communicators();
    moved = my_.fabric->progress() || moved;
  }
  if (my_.local) moved = my_.local->progress() || moved;
  moved = progress_of_communicators() || moved;
  if (my_.fabric && moved) my_.fabric->send_now();
  handle_divergences();
  if (moved) {
    ++moves_;
    ring_own_threads();
  }
  return moved;
}

// Another thread may be asleep until just that moves which has moved now.
void WorldCore::ring_own_threads() noexcept {
  if (!lock_.shared() || sleepers_ == 0) return;
  shm::ring(header());
  if (!watches_fabric_) return;
  const std::uint64_t one = 1;
  // It can fail only when the counter is full, and then the descriptor is readable.
  [[maybe_unused]] const auto written = ::write(rings_.get(), &one, sizeof one);
}

void WorldCore::begin_sleep() noexcept {
  ++sleepers_;
  header().asleep.store(1, std::memory_order_relaxed);
  std::atomic_thread_fence(std::memory_order_seq_cst);
}

void WorldCore::end_sleep() noexcept {
  if (--sleepers_ == 0) header().asleep.store(0, std::memory_order_relaxed);
}

// Another thread that sleeps takes the watch over.
void WorldCore::end_fabric_watch() noexcept {
  watches_fabric_ = false;
  if (!lock_.shared()) return;
  std::uint64_t rings = 0;
  [[maybe_unused]] const auto emptied = ::read(rings_.get(), &rings, sizeof rings);
  if (sleepers_ > 1) shm::ring(header());
}

int WorldCore::event_descriptor(std::chrono::nanoseconds check_interval) {
  if (check_interval < std::chrono::nanoseconds(0)) {
    throw std::invalid_argument(
        "World::event_descriptor(): check_interval is negative; 0 turns the checks off");
  }
  if (!may_sleep()) {
    throw std::invalid_argument(
        "World::event_descriptor(): with Waiting::spin nobody wakes this rank; join the World with "
        "another WorldOptions::waiting on all ranks");
  }
  if (!event_descriptor_) event_descriptor_ = std::make_unique<EventDescriptor>(*this);
  event_descriptor_->set_check_interval(check_interval);
  return event_descriptor_->get();
}

bool WorldCore::arm() {
  if (event_descriptor_) return event_descriptor_->arm();
  throw std::invalid_argument("World::arm(): ask for World::event_descriptor() first");
}

// A divergence may be about a communicator that this rank has not made yet, so it is also kept.
void WorldCore::handle_divergences() {
  if (!my_.side_channel) return;
  for (const StatusMessage& status : peer_status_.take_diverged()) {
    for (ProgressSource* communicator : communicators_) communicator->handle_divergence(status);
    divergences_.push_back(status);
  }
}

bool WorldCore::tell(StatusMessage::Kind kind, std::string text) noexcept {
  if (!my_.side_channel) return false;
  my_.side_channel->tell({.kind = kind, .rank = my_.rank, .text = std::move(text)});
  return true;
}

void WorldCore::tell_divergence(std::uint32_t context, const Error& error) noexcept {
  if (!my_.side_channel) return;
  StatusMessage told{.kind = StatusMessage::Kind::diverged, .rank = my_.rank, .context = context};
  if_memory_allows([&] { told.text = text_of(error); });
  my_.side_channel->tell(told);
}

// Control blocks are never given back to the system, and used again as soon as no member of their
// last communicator can still read them.
BlockOffer WorldCore::offer_block() {
  const auto is_free = [](const Retired& retired) {
    // Acquire: the members' last reads of this block come before it is written again.
    return std::ranges::all_of(retired.members, [&](const shm::ControlBlock* member) {
      return member->consumed.load(std::memory_order_acquire) >= retired.offer.last;
    });
  };
  const auto found = std::ranges::find_if(retired_, is_free);
  if (found != retired_.end()) {
    const BlockOffer offer = found->offer;
    retired_.erase(found);
    return offer;
  }
  return {.block = make_block(), .last = 0};
}

std::uint64_t WorldCore::make_block() {
  shm::RankMemory& memory = *peer(my_.rank).memory;
  try {
    const std::uint64_t block = shm::append(memory.control(), sizeof(shm::ControlBlock));
    ::new (memory.control().base() + block) shm::ControlBlock;
    return block;
  } catch (const Error& error) {
    throw Error(Errc::out_of_memory,
                "rank " + std::to_string(my_.rank) +
                    " has no shared memory for another communicator; end some of them before "
                    "another split: " +
                    error.what());
  }
}

// It was not used, so no rank has to consume anything before it is offered again.
void WorldCore::take_back(const BlockOffer& offer) {
  retired_.push_back({.offer = offer, .members = {}});
}

// The members' blocks stay mapped as long as the World, so they may be looked at later.
void WorldCore::retire(const BlockOffer& block, std::vector<const shm::ControlBlock*> members) {
  retired_.push_back({.offer = block, .members = std::move(members)});
}

WorldCore::Split::Split(WorldCore& world) : world_(world) {
  if (world.splits_) {
    throw std::logic_error(
        "rondo::transport: split: another thread of this rank is making a communicator; make them "
        "in one thread, in the same order on all ranks");
  }
  world.splits_ = true;
}

std::uint16_t WorldCore::take_port() {
  if (const auto port = ports_.take()) return *port;
  throw Error(Errc::out_of_memory,
              "rank " + std::to_string(my_.rank) + " is in " + std::to_string(Ports::count) +
                  " communicators already, those that failed among them; end some of them before "
                  "another split");
}

// From any thread, once: nothing here touches what belongs to the World's thread.
void WorldCore::abort(std::string_view reason) noexcept {
  if (abort_begun_.exchange(true)) return;
  shm::RankHeader& mine = header();
  const std::size_t length = std::min(reason.size(), mine.abort_reason.size() - 1);
  std::memcpy(mine.abort_reason.data(), reason.data(), length);
  mine.abort_reason[length] = '\0';
  // Release: the reason comes before the word.
  mine.aborted.store(1, std::memory_order_release);
  ring_all();
  std::string told;
  if_memory_allows([&] { told = mine.abort_reason.data(); });
  tell(StatusMessage::Kind::aborted, std::move(told));
  constexpr std::string_view what = "this rank aborted the job";
  std::string noted;
  if_memory_allows([&] { noted = std::string(what) + ": " + std::string(reason); });
  recorder_.note_failure(Errc::aborted, noted.empty() ? what : noted);
  if_memory_allows([&] { dump_own(what); });
}

ErrorDetail WorldCore::detail_of(int rank, std::string operation) const {
  const RankInfo info = rank < 0 ? RankInfo{} : peer(rank).info;
  return {.rank = rank, .pid = info.pid, .host = info.host, .operation = std::move(operation)};
}

Error WorldCore::abort_error(int rank, std::string_view reason) const {
  return Error(Errc::aborted, name_rank(*this, rank) + " aborted the job: " + std::string(reason),
               detail_of(rank));
}

std::optional<Error> WorldCore::aborted() const {
  for (std::size_t r = 0; r < my_.peers.size(); ++r) {
    if (!my_.peers[r].memory) continue;
    const shm::RankHeader& theirs = my_.peers[r].memory->header();
    // Acquire: pairs with the release in abort().
    if (theirs.aborted.load(std::memory_order_acquire) == 0) continue;
    return abort_error(static_cast<int>(r), theirs.abort_reason.data());
  }
  if (const auto status = peer_status_.aborted()) return abort_error(status->rank, status->text);
  return std::nullopt;
}

// A rank that was cut off is told as lost, and marks itself as left when it has given up. The first
// of the two counts, because nobody has told what such a rank took part in.
bool WorldCore::has_left(int rank) const noexcept {
  if (peer_status_.has_ended(rank)) return peer_status_.has_left(rank);
  const Peer& other = peer(rank);
  // Acquire: what the peer published before it left is read after this.
  return other.memory && other.memory->header().left.load(std::memory_order_acquire) != 0;
}

// A process that was killed marks nothing; its pidfd becomes readable.
bool WorldCore::has_ended(int rank) const noexcept {
  if (peer_status_.has_ended(rank) || has_left(rank)) return true;
  const Peer& other = peer(rank);
  if (!other.memory || !other.process) return false;
  pollfd entry{.fd = other.process->get(), .events = POLLIN, .revents = 0};
  return ::poll(&entry, 1, 0) > 0;
}

// A rank of this node may be known by its pidfd alone: it has no place in the order, and comes
// last.
std::optional<int> WorldCore::first_lost(bool unsurvived) const noexcept {
  std::optional<int> first;
  std::uint32_t least = 0;
  for (int rank = 0; rank < static_cast<int>(my_.peers.size()); ++rank) {
    if (rank == my_.rank || !has_ended(rank) || has_left(rank)) continue;
    if (unsurvived && stalls_.has_survived_loss_of(rank)) continue;
    const std::uint32_t order = peer_status_.departure(rank) - 1;  // unknown: the largest number
    if (!first || order < least) {
      first = rank;
      least = order;
    }
  }
  return first;
}

std::string name_rank(const WorldCore& world, int rank) {
  const RankInfo& info = world.peer(rank).info;
  return "rank " + std::to_string(rank) + " (pid " + std::to_string(info.pid) + " on " + info.host +
         ")";
}

}  // namespace rondo::transport
