// Calls and replicas that make no sense are refused where they are made.

#include <cstddef>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <rondo/sync/optimizer.hpp>
#include <rondo/sync/synchronous.hpp>

#include "support/world.hpp"
#include "sync/arrays.hpp"

namespace rondo::sync::synchronous_misuse_test {
namespace {

using test::Arrays;
using testing::HasSubstr;
using testing::ThrowsMessage;

constexpr Step step{.index = 3, .local_samples = 1, .global_samples = 1, .learning_rate = 0.1};

/// Runs `body` with a scheme of two layers and one rank.
void with_scheme(const std::function<void(UpdateScheme&)>& body) {
  rondo::test::World{1}.run([&](transport::World& world) {
    Arrays arrays(world, {5, 6});
    body(*make_synchronous(arrays.replica(), make_sgd(11, {})));
  });
}

TEST(SynchronousMisuseTest, RefusesALayerThatIsFinalTwice) {
  with_scheme([](UpdateScheme& scheme) {
    scheme.begin(step);
    scheme.gradients_final(1);

    EXPECT_THAT([&] { scheme.gradients_final(1); },
                ThrowsMessage<std::invalid_argument>(
                    HasSubstr("layer layer1 is final for the second time in step 3")));
  });
}

TEST(SynchronousMisuseTest, RefusesALayerThatDoesNotExist) {
  with_scheme([](UpdateScheme& scheme) {
    scheme.begin(step);

    EXPECT_THROW(scheme.gradients_final(2), std::invalid_argument);
  });
}

TEST(SynchronousMisuseTest, RefusesToFinishBeforeAllLayersAreFinal) {
  with_scheme([](UpdateScheme& scheme) {
    scheme.begin(step);
    scheme.gradients_final(1);

    EXPECT_THAT([&] { scheme.finish(); }, ThrowsMessage<std::logic_error>(HasSubstr("layer0")));
  });
}

TEST(SynchronousMisuseTest, RefusesCallsOutsideAnIteration) {
  with_scheme([](UpdateScheme& scheme) {
    EXPECT_THROW(scheme.gradients_final(0), std::logic_error);
    EXPECT_THROW(scheme.finish(), std::logic_error);
  });
}

TEST(SynchronousMisuseTest, RefusesCallsInTheMiddleOfAnIteration) {
  with_scheme([](UpdateScheme& scheme) {
    scheme.begin(step);
    std::vector<float> parameters(11);

    EXPECT_THROW(scheme.begin(step), std::logic_error);
    EXPECT_THROW(scheme.flush(), std::logic_error);
    EXPECT_THROW(static_cast<void>(scheme.save()), std::logic_error);
    EXPECT_THROW(scheme.copy_for_evaluation(parameters, {}), std::logic_error);
  });
}

TEST(SynchronousMisuseTest, RefusesAStepWithoutSamples) {
  with_scheme([](UpdateScheme& scheme) {
    EXPECT_THROW(scheme.begin({.index = 0, .global_samples = 0}), std::invalid_argument);
  });
}

TEST(SynchronousMisuseTest, RefusesAnEvaluationCopyOfAnotherSize) {
  with_scheme([](UpdateScheme& scheme) {
    std::vector<float> parameters(10);

    EXPECT_THROW(scheme.copy_for_evaluation(parameters, {}), std::invalid_argument);
  });
}

/// The reason why a replica is refused after `change`.
std::string refusal(const std::function<void(Replica&)>& change) {
  std::string reason = "accepted";
  rondo::test::World{1}.run([&](transport::World& world) {
    Arrays arrays(world, {5, 6});
    Replica replica = arrays.replica();
    change(replica);
    try {
      static_cast<void>(make_synchronous(replica, make_sgd(11, {})));
    } catch (const std::invalid_argument& error) {
      reason = error.what();
    }
  });
  return reason;
}

TEST(SynchronousMisuseTest, RefusesReplicasThatDoNotFitTogether) {
  EXPECT_EQ(refusal([](Replica&) {}), "accepted");
  EXPECT_THAT(refusal([](Replica& r) { r.world = nullptr; }), HasSubstr("no world"));
  EXPECT_THAT(refusal([](Replica& r) { r.gradients = r.gradients.first(10); }),
              HasSubstr("11 parameters, but 10 gradients"));
  EXPECT_THAT(refusal([](Replica& r) { r.layers[1].offset = 6; }),
              HasSubstr("layer1 begins at 6, the one before it ends at 5"));
  EXPECT_THAT(refusal([](Replica& r) { r.layers[1].groups.slice = nullptr; }),
              HasSubstr("layer1 has no slice group"));
  EXPECT_THAT(refusal([](Replica& r) { r.layers.pop_back(); }),
              HasSubstr("layers cover 5 of 11 parameters"));
}

TEST(SynchronousMisuseTest, RefusesNoOptimizerAndOneOfAnotherSize) {
  rondo::test::World{1}.run([](transport::World& world) {
    Arrays arrays(world, {5});

    EXPECT_THROW(static_cast<void>(make_synchronous(arrays.replica(), nullptr)),
                 std::invalid_argument);
    EXPECT_THROW(static_cast<void>(make_synchronous(arrays.replica(), make_sgd(6, {}))),
                 std::invalid_argument);
  });
}

}  // namespace
}  // namespace rondo::sync::synchronous_misuse_test
