// rondo.h: errors, and what a World has.
//
// Every function is the C++ function of the same name behind a guard. The last error is kept for
// each thread in memory of fixed size, so that remembering one cannot fail: it may be that memory
// has run out.

#include <rondo/rondo.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <exception>
#include <memory>
#include <mutex>
#include <new>
#include <string_view>
#include <system_error>
#include <vector>

#include <rondo/transport/error.hpp>

#include "handles.hpp"

namespace rondo::c {
namespace {

using transport::Errc;

constexpr std::size_t longest_error = 4096;

struct LastError {
  std::array<char, longest_error> text = {};
  int rank = -1;
};

LastError& last_error() noexcept {
  thread_local LastError error;
  return error;
}

rondo_status remember(rondo_status status, std::string_view text, int rank = -1) noexcept {
  LastError& error = last_error();
  const std::size_t length = text.copy(error.text.data(), longest_error - 1);
  error.text[length] = '\0';
  error.rank = rank;
  return status;
}

std::chrono::milliseconds milliseconds(std::int64_t value, std::chrono::milliseconds otherwise,
                                       const char* name) {
  if (value < 0) refuse(std::string(name) + " is negative");
  return value == 0 ? otherwise : std::chrono::milliseconds(value);
}

transport::Waiting waiting_of(int waiting) {
  if (waiting < RONDO_WAIT_AUTOMATIC || waiting > RONDO_WAIT_BLOCK) {
    refuse("waiting " + std::to_string(waiting) + " is none of RONDO_WAIT_AUTOMATIC (0) to " +
           "RONDO_WAIT_BLOCK (3)");
  }
  return static_cast<transport::Waiting>(waiting);
}

std::function<void(const transport::Stall&)> stall_observer(const rondo_options& given) {
  if (given.on_stall == nullptr) return {};
  return [call = given.on_stall, context = given.on_stall_context](const transport::Stall& stall) {
    const rondo_stall seen = {.struct_size = sizeof seen,
                              .rank = stall.rank,
                              .operation = stall.operation.c_str(),
                              .missing = stall.missing.data(),
                              .missing_count = stall.missing.size(),
                              .duration_ms = stall.duration.count()};
    call(&seen, context);
  };
}

transport::FabricOptions fabric_of(const rondo_options& given) {
  if (given.fake_nodes < 0) refuse("fake_nodes is negative");
  if (given.injected_latency_ns < 0) refuse("injected_latency_ns is negative");
  if (!(given.injected_bytes_per_second >= 0)) refuse("injected_bytes_per_second is negative");
  transport::FabricOptions fabric;
  if (given.fabric != nullptr) fabric.name = given.fabric;
  if (given.interface_pattern != nullptr) fabric.interface = given.interface_pattern;
  if (given.allreduce != nullptr) fabric.allreduce = given.allreduce;
  fabric.fake_nodes = given.fake_nodes;
  fabric.injected_latency = std::chrono::nanoseconds(given.injected_latency_ns);
  fabric.injected_bytes_per_second = given.injected_bytes_per_second;
  return fabric;
}

transport::WorldOptions options_of(const rondo_options* options) {
  transport::WorldOptions made;
  if (options == nullptr) return made;
  const rondo_options given = read_struct(*options, "rondo_options");
  made.waiting = waiting_of(given.waiting);
  made.deadline = milliseconds(given.deadline_ms, made.deadline, "deadline_ms");
  made.stall_warning = milliseconds(given.stall_warning_ms, made.stall_warning, "stall_warning_ms");
  made.bootstrap_deadline =
      milliseconds(given.rendezvous_deadline_ms, made.bootstrap_deadline, "rendezvous_deadline_ms");
  if (given.small_bytes != 0) made.small_bytes = given.small_bytes;
  made.on_stall = stall_observer(given);
  if (given.multiple_threads != 0) made.threads = transport::Threads::multiple;
  made.fabric = fabric_of(given);
  if (given.dump_folder != nullptr) made.dump_folder = given.dump_folder;
  return made;
}

}  // namespace

rondo_status remember_failure() noexcept {
  try {
    throw;
  } catch (const transport::Error& error) {
    return remember(error.code().value(), error.what(), error.detail().rank);
  } catch (const std::invalid_argument& error) {
    return remember(RONDO_INVALID_ARGUMENT, error.what());
  } catch (const std::bad_alloc&) {
    return remember(RONDO_OUT_OF_MEMORY, "rondo: out of memory");
  } catch (const std::system_error& error) {
    return remember(RONDO_SYSTEM_ERROR, error.what());
  } catch (const std::exception& error) {
    return remember(RONDO_INTERNAL_ERROR, error.what());
  } catch (...) {
    return remember(RONDO_INTERNAL_ERROR, "rondo: an exception of unknown type");
  }
}

}  // namespace rondo::c

using rondo::c::at;
using rondo::c::guarded;
using rondo::c::guarded_value;
using rondo::transport::World;

extern "C" {

const char* rondo_version(void) { return RONDO_VERSION; }

const char* rondo_status_name(rondo_status status) {
  switch (status) {
    case RONDO_OK:
      return "ok";
    case RONDO_PEER_LOST:
      return "peer_lost";
    case RONDO_MISMATCH:
      return "mismatch";
    case RONDO_DEADLINE_EXCEEDED:
      return "deadline_exceeded";
    case RONDO_ABORTED:
      return "aborted";
    case RONDO_RENDEZVOUS_FAILED:
      return "rendezvous_failed";
    case RONDO_OUT_OF_MEMORY:
      return "out_of_memory";
    case RONDO_LINK_UNAVAILABLE:
      return "link_unavailable";
    case RONDO_INVALID_ARGUMENT:
      return "invalid_argument";
    case RONDO_SYSTEM_ERROR:
      return "system_error";
    case RONDO_INTERNAL_ERROR:
      return "internal_error";
    default:
      return "unknown";
  }
}

const char* rondo_last_error(void) { return rondo::c::last_error().text.data(); }

int rondo_last_error_rank(void) { return rondo::c::last_error().rank; }

size_t rondo_type_size(rondo_type type) {
  return guarded_value(size_t{0}, [&] {
    return rondo::c::with_type(type, [](auto element) { return sizeof element; });
  });
}

rondo_status rondo_attach(const rondo_options* options, rondo_world** world) {
  return guarded([&] {
    at(world, "world") = nullptr;
    *world = new rondo_world(World::attach(rondo::c::options_of(options)));
  });
}

rondo_status rondo_create(int rank, int size, rondo_allgather_function* allgather, void* context,
                          const rondo_options* options, rondo_world** world) {
  return guarded([&] {
    at(world, "world") = nullptr;
    const auto call = [&](std::span<const std::byte> mine, std::span<std::byte> all) {
      const int failed = at(allgather, "allgather")(mine.data(), all.data(), mine.size(), context);
      if (failed == 0) return;
      throw rondo::transport::Error(
          rondo::transport::Errc::bootstrap_failed,
          "bootstrap: the allgather given to rondo_create() returned " + std::to_string(failed));
    };
    static_cast<void>(at(allgather, "allgather"));
    *world = new rondo_world(World::create(rank, size, call, rondo::c::options_of(options)));
  });
}

rondo_status rondo_make_threads(int ranks, const rondo_options* options, rondo_world** worlds) {
  return guarded([&] {
    at(worlds, "worlds") = nullptr;
    std::vector<std::unique_ptr<rondo_world>> made;
    for (World& world : World::make_threads(ranks, rondo::c::options_of(options))) {
      made.push_back(std::make_unique<rondo_world>(std::move(world)));
    }
    for (auto& world : made) *worlds++ = world.release();
  });
}

void rondo_world_free(rondo_world* world) { delete world; }

int rondo_world_rank(const rondo_world* world) {
  return guarded_value(-1, [&] { return at(world, "world").world.rank(); });
}

int rondo_world_size(const rondo_world* world) {
  return guarded_value(-1, [&] { return at(world, "world").world.size(); });
}

int rondo_world_nodes(const rondo_world* world) {
  return guarded_value(-1, [&] { return at(world, "world").world.nodes(); });
}

int rondo_world_oversubscribed(const rondo_world* world) {
  return guarded_value(-1, [&] { return at(world, "world").world.oversubscribed() ? 1 : 0; });
}

const char* rondo_world_route(const rondo_world* world) {
  return guarded_value<const char*>(nullptr,
                                    [&] { return at(world, "world").world.route().c_str(); });
}

rondo_status rondo_world_rank_info(const rondo_world* world, int rank, rondo_rank_info* info) {
  return guarded([&] {
    const auto ranks = at(world, "world").world.ranks();
    if (rank < 0 || static_cast<std::size_t>(rank) >= ranks.size()) {
      rondo::c::refuse("there is no rank " + std::to_string(rank) + " among " +
                       std::to_string(ranks.size()));
    }
    const auto& found = ranks[static_cast<std::size_t>(rank)];
    const rondo_rank_info own = {
        .struct_size = 0, .pid = found.pid, .node = found.node, .host = found.host.c_str()};
    rondo::c::write_struct(own, at(info, "info"), "rondo_rank_info");
  });
}

rondo_status rondo_world_counters(const rondo_world* world, rondo_counters* counters) {
  return guarded([&] {
    const auto now = at(world, "world").world.counters();
    const rondo_counters own = {.struct_size = 0,
                                .operations = now.operations,
                                .loaded_bytes = now.loaded_bytes,
                                .stored_bytes = now.stored_bytes,
                                .sent_messages = now.sent_messages,
                                .sent_bytes = now.sent_bytes,
                                .fabric_messages = now.fabric_messages,
                                .fabric_bytes = now.fabric_bytes,
                                .waiting_ns = now.waiting.count(),
                                .communicating_ns = now.communicating.count()};
    rondo::c::write_struct(own, at(counters, "counters"), "rondo_counters");
  });
}

rondo_communicator* rondo_world_communicator(rondo_world* world) {
  return guarded_value<rondo_communicator*>(nullptr,
                                            [&] { return &at(world, "world").communicator; });
}

rondo_status rondo_world_progress(rondo_world* world) {
  return guarded([&] { at(world, "world").world.progress(); });
}

rondo_status rondo_world_progress_for(rondo_world* world, int64_t budget_ns) {
  return guarded([&] { at(world, "world").world.progress(std::chrono::nanoseconds(budget_ns)); });
}

rondo_status rondo_world_event_descriptor(rondo_world* world, int64_t check_interval_ns,
                                          int* descriptor) {
  return guarded([&] {
    int& result = at(descriptor, "descriptor");
    result = at(world, "world").world.event_descriptor(std::chrono::nanoseconds(check_interval_ns));
  });
}

rondo_status rondo_world_arm(rondo_world* world, int* armed) {
  return guarded([&] {
    int& result = at(armed, "armed");
    result = at(world, "world").world.arm() ? 1 : 0;
  });
}

rondo_status rondo_world_abort(rondo_world* world, const char* reason) {
  return guarded([&] { at(world, "world").world.abort(&at(reason, "reason")); });
}

rondo_status rondo_world_dump_flight_record(const rondo_world* world, const char* path) {
  return guarded([&] { at(world, "world").world.dump_flight_record(&at(path, "path")); });
}

rondo_status rondo_world_set_dump_folder(rondo_world* world, const char* folder) {
  return guarded([&] { at(world, "world").world.set_dump_folder(&at(folder, "folder")); });
}

namespace {

// A cache line; the arena aligns to no less.
constexpr std::size_t alignment = 64;

// An allocation of 0 bytes has an address of its own, too.
std::size_t allocated_bytes(std::size_t bytes) { return std::max<std::size_t>(bytes, 1); }

// The bytes of an allocation, which is out of the table before another thread can be given its
// memory.
std::size_t forget_allocation(rondo_world& owner, void* memory) {
  const std::scoped_lock lock(owner.mutex);
  const auto found = owner.allocations.find(memory);
  if (found == owner.allocations.end()) {
    rondo::c::refuse("rondo_deallocate() of what rondo_allocate() has not given, or twice");
  }
  const std::size_t bytes = found->second;
  owner.allocations.erase(found);
  return bytes;
}

}  // namespace

rondo_status rondo_allocate(rondo_world* world, size_t bytes, void** memory) {
  return guarded([&] {
    at(memory, "memory") = nullptr;
    auto& owner = at(world, "world");
    void* made = owner.world.arena().allocate(allocated_bytes(bytes), alignment);
    try {
      const std::scoped_lock lock(owner.mutex);
      owner.allocations.emplace(made, allocated_bytes(bytes));
    } catch (...) {
      owner.world.arena().deallocate(made, allocated_bytes(bytes), alignment);
      throw;
    }
    *memory = made;
  });
}

rondo_status rondo_deallocate(rondo_world* world, void* memory) {
  return guarded([&] {
    auto& owner = at(world, "world");
    if (memory == nullptr || owner.world.is_forked_copy()) return;
    owner.world.arena().deallocate(memory, forget_allocation(owner, memory), alignment);
  });
}

rondo_status rondo_adopt(rondo_world* world, void* memory, size_t bytes, rondo_adopted** adopted) {
  return guarded([&] {
    at(adopted, "adopted") = nullptr;
    const auto pages = rondo::c::elements<std::byte>(memory, bytes, "memory");
    auto made = std::make_unique<rondo_adopted>();
    made->memory = at(world, "world").world.adopt(pages);
    *adopted = made.release();
  });
}

void rondo_adopted_free(rondo_adopted* adopted) { delete adopted; }

int rondo_arena_contains(const rondo_world* world, const void* data, size_t bytes) {
  return guarded_value(0, [&] {
    // arena() is not const in C++, because one may allocate there; asking changes nothing.
    auto& owner = const_cast<rondo_world&>(at(world, "world"));
    return owner.world.arena().contains(data, bytes) ? 1 : 0;
  });
}

size_t rondo_arena_used_bytes(const rondo_world* world) {
  return guarded_value(size_t{0}, [&] {
    return const_cast<rondo_world&>(at(world, "world")).world.arena().used_bytes();
  });
}

}  // extern "C"
