// Lazy updates where the ranks of a replica hold slices of the lazy layers.

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <rondo/sync/lazy.hpp>
#include <rondo/sync/optimizer.hpp>
#include <rondo/transport/communicator.hpp>

#include "support/world.hpp"
#include "sync/arrays.hpp"

namespace rondo::sync::lazy_slices_test {
namespace {

using rondo::test::World;
using test::Arrays;
using testing::Contains;

constexpr int steps = 40;
constexpr std::size_t elements = 9;  // of the model: a layer of 1, of 6, and of 2 that is not lazy

/// Small whole numbers: all sums are exact. They turn back now and then.
float gradient(int step, int replica, std::size_t element) {
  const auto place = static_cast<int>(element);
  const int sign = (step / (3 + place % 3)) % 2 == 0 ? 1 : -1;
  return static_cast<float>(sign * (1 + (place * 5 + replica) % 4));
}

/// What one rank of a position holds of the model, element by element.
struct Held {
  std::vector<std::size_t> layer_sizes = {};
  std::vector<std::size_t> elements = {};
  std::vector<Slices::Part> counted = {};
  std::vector<Probe> probes = {};
};

/// What a rank has at the end.
struct Result {
  std::vector<std::int64_t> intervals = {};
  std::vector<float> parameters = {};  // of the whole model; others' are 0
};

/// Trains two replicas, one rank for every entry of `held`; by rank.
std::vector<Result> train(const std::vector<Held>& held, LazyController controller) {
  const auto positions = static_cast<int>(held.size());
  std::vector<Result> results(2 * held.size());
  std::mutex mutex;
  World{2 * positions}.run([&](transport::World& world) {
    const int position = world.rank() % positions;
    const int replica_index = world.rank() / positions;
    const Held& mine = held[static_cast<std::size_t>(position)];
    transport::Communicator group = world.communicator().split(replica_index, position);
    transport::Communicator across = world.communicator().split(position, replica_index);
    Arrays arrays(world, mine.layer_sizes);
    Replica replica = arrays.replica();
    for (const std::size_t layer : {1U, 2U}) {
      if (positions > 1) replica.layers[layer].groups = {nullptr, &across, &across};
    }
    if (positions > 1) replica.slices = {&group, mine.counted};
    Result result;
    const auto scheme = make_lazy(replica, make_sgd(arrays.parameters.size(), {.momentum = 0.5F}),
                                  {.lazy_layers = 2,
                                   .probes = mine.probes,
                                   .controller = controller,
                                   .on_window = [&](const LazyWindow& window) {
                                     result.intervals.push_back(window.interval);
                                   }});
    for (int step = 0; step < steps; ++step) {
      scheme->begin(
          {.index = step, .local_samples = 1, .global_samples = 2, .learning_rate = 0.125});
      for (std::size_t i = 0; i < mine.elements.size(); ++i) {
        const float whole = gradient(step, replica_index, mine.elements[i]);
        const bool adds_up = mine.elements[i] == 0;  // the first rank of a replica has it all
        arrays.gradients[i] = adds_up && position > 0 ? 0.0F : whole;
      }
      for (std::size_t layer = 3; layer-- > 0;) scheme->gradients_final(layer);
      scheme->finish();
    }
    scheme->flush();
    result.parameters.assign(elements, 0.0F);
    for (std::size_t i = 0; i < mine.elements.size(); ++i) {
      result.parameters[mine.elements[i]] = arrays.parameters[i];
    }
    const std::lock_guard lock(mutex);
    results[static_cast<std::size_t>(world.rank())] = result;
  });
  return results;
}

Held whole_model() {
  return {.layer_sizes = {1, 6, 2},
          .elements = {0, 1, 2, 3, 4, 5, 6, 7, 8},
          .probes = {{0, 1}, {1, 4}}};
}

/// The probe's 4 elements lie 3 and 1, its layer's other two with the third rank.
std::vector<Held> slices() {
  return {{{1, 3, 0}, {0, 1, 2, 3}, {{0, 4}}, {{0, 1}, {1, 3}}},
          {{1, 1, 1}, {0, 4, 7}, {{1, 2}}, {{0, 1}, {1, 1}}},
          {{1, 2, 1}, {0, 5, 6, 8}, {{1, 3}}, {{0, 1}, {1, 0}}}};
}

class LazySlicesTest : public testing::TestWithParam<LazyController> {};

TEST_P(LazySlicesTest, AllRanksDecideAsIfTheyHeldTheModelWhole) {
  const Result whole = train({whole_model()}, GetParam()).front();
  ASSERT_THAT(whole.intervals, Contains(2)) << "or nothing is tested";

  for (const Result& result : train(slices(), GetParam())) {
    EXPECT_EQ(result.intervals, whole.intervals);
  }
}

TEST_P(LazySlicesTest, SlicesAreUpdatedAsTheWholeIs) {
  const Result whole = train({whole_model()}, GetParam()).front();
  const std::vector<Held> held = slices();
  const std::vector<Result> results = train(held, GetParam());

  for (std::size_t rank = 0; rank < results.size(); ++rank) {
    for (const std::size_t element : held[rank % held.size()].elements) {
      EXPECT_EQ(results[rank].parameters[element], whole.parameters[element]);
      EXPECT_NE(whole.parameters[element], 0.0F);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Controllers, LazySlicesTest,
                         testing::Values(LazyController::probe, LazyController::every_layer));

}  // namespace
}  // namespace rondo::sync::lazy_slices_test
