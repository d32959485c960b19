// One call of progress() works on a part of a long operation, whatever is left to do: others of the
// rank, and of the ranks that wait for it, go on meanwhile.

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <functional>
#include <span>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include <rondo/transport/communicator.hpp>

#include "support/backends.hpp"
#include "support/world.hpp"

namespace rondo::transport::tiles_test {
namespace {

using namespace std::chrono_literals;
using test::Backend;
using Floats = std::vector<float>;

// Two ranks, driven by the test's own thread.
class TilesTest : public testing::TestWithParam<Backend> {
 protected:
  static constexpr std::size_t elements = std::size_t{2} << 20U;
  static constexpr std::size_t sampled = 256;  // each so many
  static constexpr std::size_t much = elements / sampled * 3 / 4;

  // The most samples of rank 0's array that one call has changed, until `post` has ended.
  std::size_t most_changed(const std::function<Request(Communicator&, Floats&)>& post) {
    std::vector<Request> requests;
    for (std::size_t r = 0; r < 2; ++r) requests.push_back(post(worlds[r].communicator(), data[r]));
    std::size_t most = 0;
    Floats before(elements / sampled, data[0][0]);
    while (!requests[0].finished() || !requests[1].finished()) {
      worlds[0].progress(0ns);
      std::size_t changed = 0;
      for (std::size_t i = 0; i < before.size(); ++i) {
        const float now = data[0][i * sampled];
        changed += std::exchange(before[i], now) != now ? 1 : 0;
      }
      most = std::max(most, changed);
      worlds[1].progress(0ns);
    }
    return most;
  }

  std::vector<World> worlds = test::World(GetParam(), 2).open();
  std::vector<Floats> data{Floats(elements, 1.0F), Floats(elements, 4.0F)};
};

TEST_P(TilesTest, AnAverageIsDividedInTiles) {
  const std::size_t most = most_changed([](Communicator& comm, Floats& mine) {
    return comm.allreduce(std::span(mine), ReduceOp::avg);
  });

  EXPECT_LE(most, much);
  EXPECT_TRUE(test::all_are(data[0], 2.5F));
}

TEST_P(TilesTest, CoalescedArraysAreCopiedInTiles) {
  const std::size_t most = most_changed([](Communicator& comm, Floats& mine) {
    const std::span all(mine);
    const std::vector<std::span<float>> both{all.first(1000), all.subspan(1000)};
    return comm.allreduce_coalesced(std::span(both), ReduceOp::avg);
  });

  EXPECT_LE(most, much);
  EXPECT_TRUE(test::all_are(data[0], 2.5F));
}

INSTANTIATE_TEST_SUITE_P(Backends, TilesTest,
                         testing::Values(Backend::shm, Backend::shm_nodes, Backend::tcp),
                         [](const auto& backend) { return test::name_of(backend.param); });

}  // namespace
}  // namespace rondo::transport::tiles_test
