// Cyclic delayed updates where a worker is several ranks, each with a part of the model.

#include <rondo/sync/cyclic.hpp>

#include <cstddef>
#include <tuple>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <rondo/transport/communicator.hpp>
#include <rondo/transport/world.hpp>

#include "support/world.hpp"
#include "sync/cyclic_worker.hpp"

namespace rondo::sync::cyclic_slices_test {
namespace {

using rondo::test::Backend;
using rondo::test::World;
using test::CyclicPlace;
using test::CyclicWorker;

constexpr SgdOptions sgd{.momentum = 0.5F, .weight_decay = 0.0F};

/// What a worker of two ranks did: what its first rank and its second tell, and both halves.
struct Done {
  std::vector<Turn> turns[2] = {};
  std::vector<float> parameters[2] = {};
};

/// Three epochs of so many workers of two ranks, which hold the first 5 and the last 3 elements.
std::vector<Done> train_halves(Backend backend, int workers, const CyclicOptions& options) {
  std::vector<Done> done(static_cast<std::size_t>(workers));
  World{backend, 2 * workers}.run([&](transport::World& world) {
    const int half = world.rank() % 2;
    const int worker_index = world.rank() / 2;
    transport::Communicator group = world.communicator().split(worker_index, half);
    transport::Communicator across = world.communicator().split(half, worker_index);
    const CyclicPlace place{
        .worker = worker_index,
        .first = half == 0 ? 0U : 5U,
        .layers = half == 0 ? std::vector<std::size_t>{4, 1} : std::vector<std::size_t>{0, 3},
        .across = &across,
        .group = &group};
    CyclicWorker worker(world, options, sgd, place);
    for (int epoch = 0; epoch < 3; ++epoch) worker.compute_until_parked();
    worker.scheme->flush();
    Done& mine = done[static_cast<std::size_t>(worker_index)];
    mine.turns[half] = worker.turns();
    mine.parameters[half] = worker.parameters();
  });
  return done;
}

/// The same turns, taken by workers that hold the whole model.
std::vector<float> train_whole(const std::vector<Done>& done, CyclicOptions options) {
  for (const Done& worker : done) {
    options.script.insert(options.script.end(), worker.turns[0].begin(), worker.turns[0].end());
  }
  std::vector<float> parameters;
  World{static_cast<int>(done.size())}.run([&](transport::World& world) {
    CyclicWorker worker(world, options, sgd);
    for (int epoch = 0; epoch < 3; ++epoch) worker.compute_until_parked();
    worker.scheme->flush();
    if (world.rank() == 0) parameters = worker.parameters();
  });
  return parameters;
}

class CyclicSlicesTest : public testing::TestWithParam<std::tuple<Backend, int>> {
 protected:
  static void expect_whole_workers_turns(const CyclicOptions& options) {
    const auto [backend, workers] = GetParam();
    const std::vector<Done> done = train_halves(backend, workers, options);
    const std::vector<float> whole = train_whole(done, options);

    for (const Done& worker : done) {
      EXPECT_EQ(worker.turns[1], worker.turns[0]);
      std::vector<float> both = worker.parameters[0];
      both.insert(both.end(), worker.parameters[1].begin(), worker.parameters[1].end());
      EXPECT_THAT(both, testing::Pointwise(testing::FloatNear(1e-4F), whole));
    }
  }
};

TEST_P(CyclicSlicesTest, DynamicDelayIsThatOfWorkersOfOneRank) {
  expect_whole_workers_turns({.epoch_samples = 60, .total_samples = 180});
}

TEST_P(CyclicSlicesTest, SoAreSkipsAndTheCap) {
  expect_whole_workers_turns({.minibatch_cap = 2,
                              .when_empty = WhenEmpty::skip,
                              .epoch_samples = 60,
                              .total_samples = 180});
}

TEST_P(CyclicSlicesTest, SoIsTheNormOfWhatIsPushed) {
  expect_whole_workers_turns({.clip_norm = 0.5, .epoch_samples = 60, .total_samples = 180});
}

INSTANTIATE_TEST_SUITE_P(Shm, CyclicSlicesTest,
                         testing::Combine(testing::Values(Backend::shm), testing::Values(1, 2, 3)));
INSTANTIATE_TEST_SUITE_P(Nodes, CyclicSlicesTest,
                         testing::Combine(testing::Values(Backend::shm_nodes, Backend::hierarchy),
                                          testing::Values(2)));

}  // namespace
}  // namespace rondo::sync::cyclic_slices_test
