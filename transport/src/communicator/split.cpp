// How communicators are made. The ranks that make one first exchange what each can offer: a control
// block that no other communicator uses any more, and a number (port) for its messages. From this
// all of them derive the same specification: members in order, their blocks and ports, the first
// sequence number and the context. Then each resets its block, and after a barrier makes its side.

#include <algorithm>
#include <cstdint>
#include <exception>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "base/forks.hpp"
#include "communicator/communicator_core.hpp"
#include "world/world_core.hpp"

namespace rondo::transport {
namespace {

/// A member of a communicator to be made, and what it offers.
struct NewMember {
  int world_rank = 0;
  std::uint16_t port = 0;  ///< for the communicator's messages
  BlockOffer block = {};   ///< in its control segment
};

/// The facts that the members of a new communicator have agreed on.
struct CommunicatorSpec {
  std::vector<NewMember> members = {};  ///< in the order of their new ranks
  std::uint32_t context = 0;            ///< names it; no other one of its members has had the same
};

/// Each rank's entry for the others in a split: its arguments and its offer.
struct SplitEntry {
  std::int64_t color;
  std::int64_t key;
  std::int64_t context;
  NewMember member;
};
static_assert(sizeof(SplitEntry) % sizeof(std::int64_t) == 0);

// The color of ranks that stay out, and of those that lack memory for another communicator.
constexpr std::int64_t no_color = -1;
constexpr std::int64_t no_memory = -2;

/// The port and the block that this rank offers. Gives them back unless a communicator keeps them.
class Offer {
 public:
  explicit Offer(WorldCore& world) : world_(world) {
    try {
      block_ = world.offer_block();
      port_ = world.take_port();
    } catch (const Error&) {
      lacking_ = std::current_exception();
    }
  }
  Offer(const Offer&) = delete;
  Offer& operator=(const Offer&) = delete;
  ~Offer() {
    if (port_) world_.release_port(*port_);
    if (block_) world_.take_back(*block_);
  }

  [[nodiscard]] SplitEntry entry(std::int64_t color, int key) const {
    SplitEntry entry{.color = lacking_ ? no_memory : color,
                     .key = key,
                     .context = world_.next_context(),
                     .member = {.world_rank = world_.rank()}};
    if (lacking_) return entry;
    entry.member.port = *port_;
    entry.member.block = *block_;
    return entry;
  }

  /// Throws what this rank lacks.
  void expect_whole() const {
    if (lacking_) std::rethrow_exception(lacking_);
  }
  /// Leaves port and block to the new communicator.
  void keep() noexcept {
    port_.reset();
    block_.reset();
  }

 private:
  WorldCore& world_;
  std::optional<BlockOffer> block_;
  std::optional<std::uint16_t> port_;
  std::exception_ptr lacking_;
};

void expect_memory_of_others(const std::vector<SplitEntry>& entries) {
  const auto lacking = std::ranges::find(entries, no_memory, &SplitEntry::color);
  if (lacking == entries.end()) return;
  const int rank = lacking->member.world_rank;
  throw Error(Errc::out_of_memory,
              "split: rank " + std::to_string(rank) +
                  " has no shared memory or no number for another communicator; end some of them "
                  "before another split",
              {.rank = rank, .operation = "split"});
}

// Members of one color, by key, then by rank. The context is the greatest that any of them
// proposes: none of them has used it.
CommunicatorSpec spec_of(const std::vector<SplitEntry>& entries, std::int64_t color) {
  std::vector<std::size_t> order;
  for (std::size_t r = 0; r < entries.size(); ++r) {
    if (entries[r].color == color) order.push_back(r);
  }
  std::ranges::sort(order, {}, [&](std::size_t r) { return std::pair(entries[r].key, r); });
  std::int64_t context = 0;
  CommunicatorSpec spec;
  for (const std::size_t r : order) {
    spec.members.push_back(entries[r].member);
    context = std::max(context, entries[r].context);
  }
  spec.context = static_cast<std::uint32_t>(context);
  return spec;
}

// All ranks, in order, with the block that every control segment begins with.
CommunicatorSpec spec_of_world(int ranks) {
  CommunicatorSpec spec;
  for (int rank = 0; rank < ranks; ++rank) {
    spec.members.push_back({.world_rank = rank, .block = {.block = shm::RankMemory::world_block}});
  }
  return spec;
}

std::vector<NewMember> members_on_node(const WorldCore& world,
                                       const std::vector<NewMember>& members) {
  std::vector<NewMember> node;
  std::ranges::copy_if(members, std::back_inserter(node),
                       [&](const NewMember& member) { return world.same_node(member.world_rank); });
  return node;
}

// Beyond all that any of the blocks has held, by a whole round of slots.
std::uint64_t first_sequence(const std::vector<NewMember>& members) {
  std::uint64_t last = 0;
  for (const NewMember& member : members) last = std::max(last, member.block.last);
  return last + shm::slot_count;
}

Group group_of(const WorldCore& world, const std::vector<NewMember>& members) {
  Group group;
  for (const NewMember& offered : members) {
    if (offered.world_rank == world.rank()) group.rank = group.size();
    Member member{.world_rank = offered.world_rank, .port = offered.port};
    if (world.same_node(offered.world_rank)) {
      member.memory = world.peer(offered.world_rank).memory.get();
      member.block = &member.memory->block(offered.block.block);
    }
    group.members.push_back(member);
  }
  return group;
}

// The offset of this rank's block in its control segment.
std::uint64_t own_block(const WorldCore& world, const std::vector<NewMember>& members) {
  return std::ranges::find(members, world.rank(), &NewMember::world_rank)->block.block;
}

// All members do so before any of them makes the communicator.
void reset_block(const WorldCore& world, const CommunicatorSpec& spec) {
  shm::ControlBlock& block = world.peer(world.rank()).memory->block(own_block(world, spec.members));
  const std::uint64_t first = first_sequence(members_on_node(world, spec.members));
  // Relaxed: the barrier that follows publishes them. No other rank reads the block before it.
  block.consumed.store(first - 1, std::memory_order_relaxed);
  block.staged_filled.store(0, std::memory_order_relaxed);
  block.staged_reduced.store(0, std::memory_order_relaxed);
  block.staged_read.store(0, std::memory_order_relaxed);
}

// Over several nodes the sequences are the same on all ranks, and those in the block are of what it
// does inside the node.
std::shared_ptr<CommunicatorCore> make_communicator(WorldCore& world,
                                                    const CommunicatorSpec& spec) {
  world.use_context(spec.context);
  const std::vector<NewMember> node = members_on_node(world, spec.members);
  const bool spans_nodes = node.size() < spec.members.size();
  auto core = make_in_this_process<CommunicatorCore>(
      world.shared_from_this(), group_of(world, spec.members), own_block(world, spec.members),
      spans_nodes ? shm::slot_count : first_sequence(node), spec.context);
  if (spans_nodes) core->span_nodes(first_sequence(node));
  core->begin_recording();
  return core;
}

}  // namespace

std::shared_ptr<CommunicatorCore> CommunicatorCore::of_world(WorldCore& world) {
  static_cast<void>(world.take_port());  // the first, 0, as all ranks assume
  return make_communicator(world, spec_of_world(static_cast<int>(world.peers().size())));
}

std::shared_ptr<CommunicatorCore> CommunicatorCore::split(std::optional<int> color, int key) {
  if (color && *color < 0) {
    throw std::invalid_argument("rondo::transport: split: color is negative");
  }
  const WorldCore::Split split(*world_);
  Offer offer(*world_);
  const SplitEntry mine = offer.entry(color ? std::int64_t{*color} : no_color, key);
  std::vector<SplitEntry> entries(group_.count());
  allgather_bytes(std::as_bytes(std::span(&mine, 1)), std::as_writable_bytes(std::span(entries)));
  // All ranks see the same entries, so none of them goes on.
  offer.expect_whole();
  expect_memory_of_others(entries);

  CommunicatorSpec spec;
  if (color) {
    spec = spec_of(entries, *color);
    reset_block(*world_, spec);
    offer.keep();  // ranks that pass the barrier may use it, whatever happens here
  }
  // No rank publishes in a new communicator before all have reset their blocks.
  post(prepare_barrier()).wait();
  if (!color) return nullptr;
  return make_communicator(*world_, spec);
}

}  // namespace rondo::transport
