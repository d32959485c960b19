// The threads that a program lends: what is long enough is shared out among them on every path that
// bytes take, and the bits are those of one thread.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory_resource>
#include <numeric>
#include <ostream>
#include <span>
#include <string>
#include <tuple>
#include <vector>

#include <gtest/gtest.h>

#include <rondo/transport/communicator.hpp>
#include <rondo/transport/team.hpp>

#include "support/sanitized.hpp"
#include "support/team.hpp"
#include "support/world.hpp"

namespace rondo::transport::team_test {
namespace {

using test::Backend;
using test::Memory;
using test::ThreadTeam;

/// A way between ranks, and where their buffers lie.
struct Way {
  const char* name;
  Backend backend;
  Memory memory;
  bool interleaved = false;  ///< consecutive ranks of the communicator are on different nodes
};
void PrintTo(const Way& way, std::ostream* out) { *out << way.name; }

const Way direct{"Direct", Backend::shm, Memory::arena};
const Way staged{"Staged", Backend::shm, Memory::ordinary};
const Way nodes{"Nodes", Backend::shm_nodes, Memory::ordinary};
const Way hierarchy{"Hierarchy", Backend::hierarchy, Memory::arena};
const Way packed{"Packed", Backend::hierarchy, Memory::ordinary, true};

constexpr int ranks = 4;
// Elements of which a quarter is long enough for a team.
constexpr std::size_t long_count = 100'003;

/// Numbers whose sums in another order have other bits; made once, because that takes a while.
const std::vector<float>& numbers() {
  static const std::vector<float> all = [] {
    std::vector<float> made((long_count + 1) * ranks);
    std::uint32_t state = 1;
    for (float& value : made) {
      state = state * 1'664'525U + 1'013'904'223U;
      value = static_cast<float>(static_cast<std::int32_t>(state)) * 0x1p-31F;
    }
    return made;
  }();
  return all;
}

/// One rank's buffers: `in` has a part of `count` elements for each rank, `out` room for as many.
struct Buffers {
  Buffers(Communicator& communicator, std::pmr::memory_resource* resource, std::size_t elements)
      : comm(communicator),
        count(elements),
        memory(resource),
        data(static_cast<float*>(memory->allocate(2 * part_bytes() * ranks, 64))),
        in(data, count * ranks),
        out(data + count * ranks, count * ranks) {
    std::memcpy(in.data(), numbers().data() + comm.rank(), in.size_bytes());
    std::memset(out.data(), 0, out.size_bytes());
  }
  Buffers(const Buffers&) = delete;
  Buffers& operator=(const Buffers&) = delete;
  ~Buffers() { memory->deallocate(data, 2 * part_bytes() * ranks, 64); }

  [[nodiscard]] std::span<const float> sent() const { return in.first(count); }
  [[nodiscard]] std::span<float> received() const { return out.first(count); }
  /// `parts` of the ranks' parts as rows, with gaps between them.
  template <typename T>
  [[nodiscard]] Strided<T> rows(T* first, std::size_t parts) const {
    return {first, count / 5, parts * 3, 5 * ranks};
  }
  void append_to(std::string& bytes) const {
    bytes.append(reinterpret_cast<const char*>(data), 2 * part_bytes() * ranks);
  }

  [[nodiscard]] std::size_t part_bytes() const { return count * sizeof(float); }

  Communicator& comm;
  std::size_t count;
  std::pmr::memory_resource* memory;
  float* data;
  std::span<float> in;
  std::span<float> out;
};

/// A collective, and what of it a rank has to wait for.
struct Call {
  const char* name;
  Request (*post)(Buffers& data);
};
void PrintTo(const Call& call, std::ostream* out) { *out << call.name; }

const std::vector<Call> calls{
    {"Allreduce", [](Buffers& b) { return b.comm.allreduce(b.sent(), b.received()); }},
    {"Average", [](Buffers& b) { return b.comm.allreduce(b.sent(), b.received(), ReduceOp::avg); }},
    {"Coalesced",
     [](Buffers& b) {
       const std::vector<std::span<float>> arrays{b.in.first(b.count / 3), b.in.last(b.count / 2)};
       return b.comm.allreduce_coalesced(std::span(arrays));
     }},
    {"Reduce", [](Buffers& b) { return b.comm.reduce(b.sent(), b.received(), 1); }},
    {"ReduceScatter", [](Buffers& b) { return b.comm.reduce_scatter<float>(b.in, b.received()); }},
    {"ReduceScatterOfRows",
     [](Buffers& b) {
       return b.comm.reduce_scatter(b.rows<const float>(b.in.data(), ranks),
                                    b.rows(b.out.data(), 1));
     }},
    {"Allgather", [](Buffers& b) { return b.comm.allgather(b.sent(), b.out); }},
    {"AllgatherOfRows",
     [](Buffers& b) {
       return b.comm.allgather(b.rows<const float>(b.in.data(), 1), b.rows(b.out.data(), ranks));
     }},
    {"Broadcast", [](Buffers& b) { return b.comm.broadcast(b.in, 2); }},
    {"Alltoall", [](Buffers& b) { return b.comm.alltoall(b.in, b.out); }},
    {"Alltoallv",
     [](Buffers& b) {
       const std::vector<std::size_t> counts(ranks, b.count);
       return b.comm.alltoallv(b.in, counts, b.out, counts);
     }},
    {"Gather", [](Buffers& b) { return b.comm.gather(b.sent(), b.out, 1); }},
    {"Scatter", [](Buffers& b) { return b.comm.scatter(b.in, b.received(), 3); }},
    {"Scan", [](Buffers& b) { return b.comm.scan(b.sent(), b.received()); }},
    {"Exscan", [](Buffers& b) { return b.comm.exscan(b.sent(), b.received()); }},
    {"SendrecvOfRows",
     [](Buffers& b) {
       const Neighbour next((b.comm.rank() + 1) % ranks, b.rows<const float>(b.in.data(), 1),
                            b.rows(b.out.data(), 0));
       const Neighbour previous((b.comm.rank() + ranks - 1) % ranks,
                                b.rows<const float>(b.in.data(), 0), b.rows(b.out.data(), 1));
       return b.comm.sendrecv(std::vector{next, previous});
     }},
};

/// The buffers of all ranks after a call, and how often each rank has used its team.
struct Outcome {
  std::vector<std::string> buffers = std::vector<std::string>(ranks);
  std::vector<std::size_t> runs = std::vector<std::size_t>(ranks);

  [[nodiscard]] std::size_t all_runs() const {
    return std::accumulate(runs.begin(), runs.end(), std::size_t{0});
  }
};

/// Calls it once with parts of each of `counts` elements.
Outcome run(const Way& way, const Call& call, const std::vector<std::size_t>& counts, Team* team) {
  WorldOptions options = test::quick_options();
  options.team = team;
  Outcome outcome;
  test::World(way.backend, ranks, options).run([&](World& world) {
    const int half = ranks / 2;
    const int key = way.interleaved ? world.rank() % half * half + world.rank() / half : 0;
    Communicator comm = world.communicator().split(0, key);
    const auto rank = static_cast<std::size_t>(comm.rank());
    const std::size_t before = ThreadTeam::runs;
    for (const std::size_t count : counts) {
      Buffers data(comm, test::resource(world, way.memory), count);
      call.post(data).wait();
      data.append_to(outcome.buffers[rank]);
    }
    outcome.runs[rank] = ThreadTeam::runs - before;
  });
  return outcome;
}

// Parameters: way, call.
class TeamTest : public testing::TestWithParam<std::tuple<Way, Call>> {
 protected:
  [[nodiscard]] static const Way& way() { return std::get<0>(GetParam()); }
  [[nodiscard]] static const Call& call() { return std::get<1>(GetParam()); }
  /// A broadcast between nodes is received where it belongs.
  [[nodiscard]] static bool copies_nothing() {
    return std::string(call().name) == "Broadcast" && way().backend == Backend::shm_nodes;
  }
};

// 64 KiB are 16,384 elements: parts, slices and rounds are below that and above it.
TEST_P(TeamTest, GivesTheBitsOfOneThread) {
  const std::vector<std::size_t> counts{16'383, 16'385, 65'541};
  const std::vector<std::string> expected = run(way(), call(), counts, nullptr).buffers;
  for (int size = test::sanitized ? 3 : 1; size <= 3; ++size) {
    ThreadTeam team(size);

    EXPECT_TRUE(run(way(), call(), counts, &team).buffers == expected) << size << " threads";
  }
}

TEST_P(TeamTest, SharesOutWhatIsLong) {
  ThreadTeam team(2);

  const std::size_t runs = run(way(), call(), {long_count}, &team).all_runs();

  EXPECT_EQ(runs > 0, !copies_nothing()) << runs;
}

TEST_P(TeamTest, LeavesWhatIsShortToTheCallingThread) {
  ThreadTeam team(2);

  EXPECT_EQ(run(way(), call(), {1'000}, &team).all_runs(), 0U);
}

INSTANTIATE_TEST_SUITE_P(Ways, TeamTest,
                         testing::Combine(testing::Values(direct, staged, nodes, hierarchy, packed),
                                          testing::ValuesIn(calls)),
                         [](const auto& test) {
                           return std::string(std::get<0>(test.param).name) +
                                  std::get<1>(test.param).name;
                         });

// Between nodes sums are divided when they are complete.
TEST(TeamUseTest, SharesOutTheDivisionOfAnAverage) {
  ThreadTeam team(2);
  const auto runs = [&team](const char* name) {
    const auto call = std::ranges::find(calls, std::string(name), &Call::name);
    return run(nodes, *call, {long_count}, &team).all_runs();
  };

  EXPECT_EQ(runs("Average"), runs("Allreduce") + ranks);
}

}  // namespace
}  // namespace rondo::transport::team_test
