// A run that is saved and restored goes on with the same bits.

#include <algorithm>
#include <cstddef>
#include <memory>
#include <span>
#include <stdexcept>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <rondo/sync/optimizer.hpp>
#include <rondo/sync/synchronous.hpp>

#include "support/world.hpp"
#include "sync/arrays.hpp"

namespace rondo::sync::synchronous_state_test {
namespace {

using test::Arrays;
using testing::ElementsAreArray;

/// One iteration whose gradients depend on the parameters, the rank and the step.
void iterate(UpdateScheme& scheme, Arrays& arrays, int index) {
  scheme.begin({.index = index, .local_samples = 1, .global_samples = 2, .learning_rate = 0.1});
  for (std::size_t i = 0; i < arrays.gradients.size(); ++i) {
    arrays.gradients[i] = arrays.parameters[i] * 0.3F + static_cast<float>(index) * 0.7F;
  }
  for (std::size_t layer = arrays.layers(); layer-- > 0;) scheme.gradients_final(layer);
  scheme.finish();
}

std::unique_ptr<UpdateScheme> make_scheme(Arrays& arrays) {
  return make_synchronous(arrays.replica(), make_sgd(arrays.parameters.size(), {}));
}

TEST(SynchronousStateTest, ARestoredRunGoesOnWithTheSameBits) {
  rondo::test::World{2}.run([](transport::World& world) {
    Arrays arrays(world, {50, 60});
    std::ranges::fill(arrays.parameters, 1.0F);
    const auto scheme = make_scheme(arrays);
    for (int i = 0; i < 3; ++i) iterate(*scheme, arrays, i);
    Arrays others(world, {50, 60});
    const auto other = make_scheme(others);

    std::ranges::copy(arrays.parameters, others.parameters.begin());
    other->restore(scheme->save());
    iterate(*scheme, arrays, 3);
    iterate(*other, others, 3);

    EXPECT_THAT(others.parameters, ElementsAreArray(arrays.parameters));
    EXPECT_EQ(other->counters().global_reductions, 4U);
    EXPECT_EQ(other->save(), scheme->save());
  });
}

TEST(SynchronousStateTest, AnEvaluationCopyLeavesTheStateAsItWas) {
  rondo::test::World{2}.run([](transport::World& world) {
    Arrays arrays(world, {50});
    const auto scheme = make_scheme(arrays);
    iterate(*scheme, arrays, 0);
    const std::vector<std::byte> before = scheme->save();
    std::vector<float> parameters(50);

    scheme->copy_for_evaluation(parameters, {});
    scheme->flush();

    EXPECT_EQ(scheme->save(), before);
    EXPECT_THAT(arrays.parameters, ElementsAreArray(parameters));
  });
}

TEST(SynchronousStateTest, RefusesTheStateOfAnotherModelAndKeepsItsOwn) {
  rondo::test::World{1}.run([](transport::World& world) {
    Arrays arrays(world, {50});
    Arrays others(world, {51});
    const auto scheme = make_scheme(arrays);
    iterate(*scheme, arrays, 0);
    const std::vector<std::byte> before = scheme->save();

    EXPECT_THROW(scheme->restore(make_scheme(others)->save()), std::invalid_argument);
    EXPECT_THROW(scheme->restore(make_sgd(50, {})->save()), std::invalid_argument);
    EXPECT_THROW(scheme->restore(std::span(before).first(before.size() - 1)),
                 std::invalid_argument);

    EXPECT_EQ(scheme->save(), before);
  });
}

}  // namespace
}  // namespace rondo::sync::synchronous_state_test
