// World, a thin layer over WorldCore; AdoptedMemory, which belongs to one; and what a host program
// gives it or reads of it from outside: Team, whose threads it lends, and FlightRecord, the memory
// in which a rank records.

#include <rondo/transport/world.hpp>

#include <algorithm>
#include <chrono>
#include <mutex>
#include <utility>

#include <rondo/transport/flight_record.hpp>
#include <rondo/transport/team.hpp>

#include "bootstrap/bootstrap.hpp"
#include "communicator/communicator_core.hpp"
#include "memory/arena.hpp"
#include "recorder/recorder.hpp"
#include "world/world_core.hpp"

namespace rondo::transport {

Team::~Team() = default;

namespace {

// Durations that stand for "never", such as milliseconds::max(), would overflow in nanoseconds.
WorldOptions bounded(WorldOptions options) {
  constexpr std::chrono::milliseconds longest = std::chrono::years(100);
  for (std::chrono::milliseconds* duration :
       {&options.deadline, &options.stall_warning, &options.bootstrap_deadline}) {
    *duration = std::min(*duration, longest);
  }
  return options;
}

}  // namespace

World World::attach(const WorldOptions& options) {
  return World(bootstrap::attach(bounded(options)));
}

World World::create(int rank, int size, const Allgather& allgather, const WorldOptions& options) {
  return World(bootstrap::create(rank, size, allgather, bounded(options)));
}

std::vector<World> World::make_threads(int ranks, const WorldOptions& options) {
  std::vector<World> worlds;
  for (auto& core : bootstrap::make_threads(ranks, bounded(options))) {
    worlds.push_back(World(std::move(core)));
  }
  return worlds;
}

World::World(std::shared_ptr<WorldCore> core)
    : core_(std::move(core)), communicator_(new Communicator(CommunicatorCore::of_world(*core_))) {}

World::~World() = default;

bool World::is_forked_copy() const noexcept { return core_->lock().is_copy(); }

int World::rank() const noexcept { return core_->rank(); }

int World::size() const noexcept { return static_cast<int>(core_->peers().size()); }

int World::nodes() const noexcept { return core_->nodes(); }

const std::string& World::route() const noexcept { return core_->route(); }

const FabricOptions& World::fabric() const noexcept { return core_->options().fabric; }

Communicator& World::communicator() noexcept { return *communicator_; }

SharedArena& World::arena() noexcept { return core_->arena(); }

AdoptedMemory World::adopt(std::span<std::byte> memory) {
  if (memory.empty()) return {};
  const std::lock_guard entry(core_->lock());
  return {core_, memory, core_->arena_core().adopt(memory)};
}

// Other threads are let in between two passes.
void World::progress() {
  bool moved = true;
  while (moved) {
    const std::lock_guard entry(core_->lock());
    moved = core_->progress();
  }
}

void World::progress(std::chrono::nanoseconds budget) {
  // Not the end is computed: "for ever" would overflow.
  const auto begin = std::chrono::steady_clock::now();
  bool moved = true;
  while (moved) {
    const std::lock_guard entry(core_->lock());
    moved = core_->progress() && std::chrono::steady_clock::now() - begin < budget;
  }
}

int World::event_descriptor(std::chrono::nanoseconds check_interval) {
  const std::lock_guard entry(core_->lock());
  return core_->event_descriptor(check_interval);
}

bool World::arm() {
  const std::lock_guard entry(core_->lock());
  return core_->arm();
}

void World::abort(std::string_view reason) noexcept { core_->abort(reason); }

void World::dump_flight_record(const std::string& path) const { core_->dump_flight_record(path); }

void World::set_dump_folder(const std::string& folder) { core_->set_dump_folder(folder); }

Counters World::counters() const noexcept {
  const auto entry = core_->lock().reading();
  return core_->counters();
}

std::span<const RankInfo> World::ranks() const noexcept { return core_->infos(); }

bool World::oversubscribed() const noexcept { return core_->oversubscribed(); }

FlightRecord::FlightRecord(std::unique_ptr<recorder::Memory> memory) noexcept
    : memory_(std::move(memory)) {}
FlightRecord::FlightRecord(FlightRecord&&) noexcept = default;
FlightRecord& FlightRecord::operator=(FlightRecord&&) noexcept = default;
FlightRecord::~FlightRecord() = default;

FlightRecord FlightRecord::create() {
  return FlightRecord(std::make_unique<recorder::Memory>(recorder::Memory::create()));
}

int FlightRecord::descriptor() const noexcept { return memory_->descriptor(); }

bool FlightRecord::tells_of_failure() const {
  const recorder::RecordHeader* header = memory_->header();
  return header != nullptr && header->failure.load(std::memory_order_acquire) != 0;
}

std::string FlightRecord::json(std::string_view reason) const {
  return recorder::to_json(*memory_, reason);
}

bool FlightRecord::write(const std::filesystem::path& path, std::string_view reason) const {
  return recorder::dump(*memory_, reason, path);
}

std::filesystem::path FlightRecord::path_in(const std::filesystem::path& folder, int rank) {
  return recorder::dump_path(folder, rank);
}

AdoptedMemory::AdoptedMemory(std::weak_ptr<WorldCore> world, std::span<std::byte> memory,
                             std::span<std::byte> pages) noexcept
    : world_(std::move(world)), memory_(memory), pages_(pages) {}

AdoptedMemory::AdoptedMemory(AdoptedMemory&& other) noexcept
    : world_(std::move(other.world_)),
      memory_(std::exchange(other.memory_, {})),
      pages_(std::exchange(other.pages_, {})) {}

AdoptedMemory& AdoptedMemory::operator=(AdoptedMemory&& other) noexcept {
  if (this == &other) return *this;
  release();
  world_ = std::move(other.world_);
  memory_ = std::exchange(other.memory_, {});
  pages_ = std::exchange(other.pages_, {});
  return *this;
}

AdoptedMemory::~AdoptedMemory() { release(); }

// The World may have ended; the mapping keeps the arena's memory alive until here.
void AdoptedMemory::release() noexcept {
  if (pages_.empty()) return;
  const bool made_private = ArenaCore::make_private(pages_);
  if (const auto world = world_.lock(); world && !world->lock().is_copy()) {
    const std::lock_guard entry(world->lock());
    world->arena_core().forget(pages_, made_private);
  }
  memory_ = pages_ = {};
}

}  // namespace rondo::transport
