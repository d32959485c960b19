#pragma once

// Ranks for tests: threads of this process, one World each.

#include <chrono>
#include <cstddef>
#include <exception>
#include <memory>
#include <memory_resource>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include <rondo/transport/communicator.hpp>
#include <rondo/transport/world.hpp>

namespace rondo::test {

/// Which way bytes take between the ranks of a test.
enum class Backend {
  shm,            ///< one node
  shm_nodes,      ///< every rank a node of its own, joined by the link over shared memory
  tcp,            ///< the same, joined by sockets
  ucx_tcp,        ///< the same, joined by UCX over TCP
  ucx_shm,        ///< the same, by UCX over its shared-memory transports
  ofi_tcp,        ///< the same, by libfabric over TCP
  hierarchy,      ///< about half as many nodes as ranks, joined by the link over shared memory
  hierarchy_tcp,  ///< the same, joined by sockets
  hierarchy_ucx,  ///< the same, joined by UCX over TCP
};

/// A backend's name in the names of tests, what joins its nodes, and the ranks of a node; 0: all.
struct BackendFacts {
  const char* name;
  const char* fabric;
  int ranks_per_node;
};

inline const BackendFacts& facts_of(Backend backend) {
  static constexpr BackendFacts facts[] = {{"Shm", "auto", 0},
                                           {"ShmNodes", "shm", 1},
                                           {"Tcp", "tcp", 1},
                                           {"UcxTcp", "ucx:tcp,self", 1},
                                           {"UcxShm", "ucx:posix,self", 1},
                                           {"OfiTcp", "ofi:tcp", 1},
                                           {"Hierarchy", "shm", 2},
                                           {"HierarchyTcp", "tcp", 2},
                                           {"HierarchyUcx", "ucx:tcp,self", 2}};
  return facts[static_cast<std::size_t>(backend)];
}

inline transport::FabricOptions fabric_of(Backend backend, int ranks) {
  const auto& [name, fabric, per_node] = facts_of(backend);
  if (per_node == 0) return {};
  return {.name = fabric, .fake_nodes = (ranks + per_node - 1) / per_node};
}

inline const char* name_of(Backend backend) { return facts_of(backend).name; }

/// Where a test's buffers lie.
enum class Memory {
  arena,     ///< all in the ranks' arenas
  ordinary,  ///< none
  mixed,     ///< all but those of the last rank
};

/// Options under which a test that hangs fails soon instead.
inline transport::WorldOptions quick_options() {
  transport::WorldOptions options;
  options.deadline = std::chrono::seconds(60);
  return options;
}

/// Refers to a caller's body(World&) or body(Communicator&). It is no template, so that the threads
/// which run it are compiled once for all tests.
class RankBody {
 public:
  template <typename Body>
    requires(!std::is_same_v<std::remove_cvref_t<Body>, RankBody>)
  RankBody(
      Body&& body)  // NOLINT(*-explicit-*, *-forwarding-reference-overload, *-missing-std-forward)
      : body_(std::addressof(body)), call_(&call<std::remove_reference_t<Body>>) {}

  void operator()(transport::World& world) const { call_(body_, world); }

 private:
  template <typename Body>
  static void call(const void* body, transport::World& world) {
    // A body that the caller has passed as mutable is mutable.
    Body& callable = *static_cast<Body*>(const_cast<void*>(body));
    if constexpr (std::is_invocable_v<Body&, transport::World&>) {
      callable(world);
    } else {
      callable(world.communicator());
    }
  }

  const void* body_;
  void (*call_)(const void*, transport::World&);
};

/// Calls `body`. The first exception of a rank aborts the World, so that the others end, and fails
/// the test.
inline void run_rank(transport::World& world, RankBody body) {
  try {
    body(world);
  } catch (const std::exception& error) {
    world.abort(error.what());
    ADD_FAILURE() << "rank " << world.rank() << ": " << error.what();
  }
}

/// A World whose ranks are threads, opened anew by each run(), which returns when all have.
class World {
 public:
  explicit World(int ranks, transport::WorldOptions options = quick_options())
      : ranks_(ranks), options_(std::move(options)) {}
  World(Backend backend, int ranks, transport::WorldOptions options = quick_options())
      : World(ranks, std::move(options)) {
    options_.fabric = fabric_of(backend, ranks);
  }

  void run(RankBody body) const { run_without(-1, body); }

  /// As run(), but rank `absent` leaves at once.
  void run_without(int absent, RankBody body) const {
    std::vector<transport::World> worlds = open();
    std::vector<std::thread> threads;
    for (transport::World& world : worlds) {
      threads.emplace_back([body, absent, mine = std::move(world)]() mutable {
        if (mine.rank() != absent) run_rank(mine, body);
      });
    }
    worlds.clear();
    for (std::thread& thread : threads) thread.join();
  }

  /// The ranks, for a caller that keeps them.
  [[nodiscard]] std::vector<transport::World> open() const {
    return transport::World::make_threads(ranks_, options_);
  }

 private:
  int ranks_;
  transport::WorldOptions options_;
};

/// A test whose parameter is the number of ranks.
class RanksTest : public testing::TestWithParam<int> {
 protected:
  [[nodiscard]] static int ranks() { return GetParam(); }
};

/// A World that stays open from one run() to the next, because opening one can take longer than
/// what a test does with it. One that a test has failed in is opened anew.
class OpenWorld {
 public:
  OpenWorld(Backend backend, int ranks) : world_(backend, ranks) {}
  OpenWorld(const OpenWorld&) = delete;
  OpenWorld& operator=(const OpenWorld&) = delete;
  ~OpenWorld() { close(); }

  void run(RankBody body) {
    if (ranks_.empty()) ranks_ = world_.open();
    std::vector<std::thread> threads;
    for (transport::World& rank : ranks_) {
      threads.emplace_back([body, &rank] { run_rank(rank, body); });
    }
    for (std::thread& thread : threads) thread.join();
    if (testing::Test::HasFailure()) close();
  }

 private:
  // All at once, as ranks of a job leave.
  void close() {
    std::vector<std::thread> threads;
    for (transport::World& rank : ranks_) {
      threads.emplace_back([mine = std::move(rank)]() mutable {});
    }
    ranks_.clear();
    for (std::thread& thread : threads) thread.join();
  }

  World world_;
  std::vector<transport::World> ranks_;
};

/// Where rank `world.rank()` puts its buffers.
inline std::pmr::memory_resource* resource(transport::World& world, Memory memory) {
  const bool shared =
      memory == Memory::arena || (memory == Memory::mixed && world.rank() != world.size() - 1);
  return shared ? static_cast<std::pmr::memory_resource*>(&world.arena())
                : std::pmr::get_default_resource();
}

/// Are all elements `expected`? (gmock's Each takes seconds for a million elements.)
template <typename Range, typename T>
testing::AssertionResult all_are(const Range& range, const T& expected) {
  for (std::size_t i = 0; i < range.size(); ++i) {
    if (range[i] == expected) continue;
    return testing::AssertionFailure()
           << "element " << i << " is " << range[i] << ", not " << expected;
  }
  return testing::AssertionSuccess();
}

inline const char* name_of(Memory memory) {
  return memory == Memory::arena ? "arena" : memory == Memory::ordinary ? "ordinary" : "mixed";
}

}  // namespace rondo::test
