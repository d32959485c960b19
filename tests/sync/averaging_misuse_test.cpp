// Replicas, options and calls that make no sense are refused where they are made.

#include <cstddef>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <rondo/sync/hierarchical.hpp>
#include <rondo/sync/k_step.hpp>
#include <rondo/sync/optimizer.hpp>
#include <rondo/transport/communicator.hpp>
#include <rondo/transport/world.hpp>

#include "support/world.hpp"
#include "sync/arrays.hpp"

namespace rondo::sync::averaging_misuse_test {
namespace {

using test::Arrays;
using testing::HasSubstr;
using testing::ThrowsMessage;

constexpr Step step{.index = 3, .local_samples = 1, .global_samples = 1, .learning_rate = 0.1};

/// The reason why a replica of two layers on one rank is refused after `change`.
std::string refusal(const std::function<void(Replica&, transport::Communicator&)>& change,
                    const KStepOptions& options = {}) {
  std::string reason = "accepted";
  rondo::test::World{1}.run([&](transport::World& world) {
    transport::Communicator other = world.communicator().split(0);
    Arrays arrays(world, {5, 6});
    Replica replica = arrays.replica();
    change(replica, other);
    try {
      static_cast<void>(make_k_step(replica, make_sgd(11, {}), options));
    } catch (const std::invalid_argument& error) {
      reason = error.what();
    }
  });
  return reason;
}

std::string refusal(const KStepOptions& options) {
  return refusal([](Replica&, transport::Communicator&) {}, options);
}

TEST(AveragingMisuseTest, RefusesReplicasWhoseLayersMeetDifferently) {
  EXPECT_EQ(refusal([](auto&, auto&) {}), "accepted");
  EXPECT_THAT(refusal([](Replica& r, auto& other) { r.layers[1].groups.outer = &other; }),
              HasSubstr("k_step: layer layer1 has another outer group than layer layer0"));
  EXPECT_EQ(refusal([](Replica& r, auto& other) { r.layers[1].groups.inner = &other; }),
            "accepted");
  EXPECT_THAT(refusal([](Replica& r, auto&) { r.layers[0].groups.outer = nullptr; }),
              HasSubstr("k_step: layer layer0 has no outer group"));
  EXPECT_THAT(refusal([](Replica& r, auto&) {
                r.layers.clear();
                r.parameters = r.gradients = {};
              }),
              HasSubstr("k_step: the replica has no layers"));
  EXPECT_THAT(refusal([](Replica& r, auto&) { r.gradients = r.gradients.first(10); }),
              HasSubstr("11 parameters, but 10 gradients"));
}

TEST(AveragingMisuseTest, RefusesOptionsOutOfRange) {
  EXPECT_THAT(refusal({.period = 0}), HasSubstr("k_step: the global period is 0"));
  EXPECT_THAT(refusal({.momentum = {.mu = 1.5F}}),
              HasSubstr("k_step: a reduction momentum of 1.5"));
  EXPECT_THAT(refusal({.clip_norm = -1.0}), HasSubstr("k_step: a clip_norm of -1.0"));
}

TEST(AveragingMisuseTest, RefusesOptimizersThatDoNotFit) {
  rondo::test::World{1}.run([](transport::World& world) {
    Arrays arrays(world, {5});
    const auto making = [&](std::shared_ptr<Optimizer> optimizer) {
      return [&arrays, optimizer] {
        static_cast<void>(make_hierarchical(arrays.replica(), optimizer, {}));
      };
    };

    EXPECT_THAT(making(nullptr), ThrowsMessage<std::invalid_argument>(
                                     HasSubstr("hierarchical: no optimizer was given")));
    EXPECT_THAT(making(make_sgd(6, {})),
                ThrowsMessage<std::invalid_argument>(HasSubstr(
                    "hierarchical: the optimizer is for 6 parameters, the replica has 5")));
  });
}

/// Runs `body` with a scheme of one layer and one rank.
void with_scheme(const std::function<void(UpdateScheme&)>& body) {
  rondo::test::World{1}.run([&](transport::World& world) {
    Arrays arrays(world, {5});
    body(*make_k_step(arrays.replica(), make_sgd(5, {})));
  });
}

TEST(AveragingMisuseTest, RefusesCallsOutOfOrder) {
  with_scheme([](UpdateScheme& scheme) {
    EXPECT_THROW(scheme.finish(), std::logic_error);
    EXPECT_THROW(scheme.gradients_final(0), std::logic_error);

    scheme.begin(step);

    EXPECT_THROW(scheme.finish(), std::logic_error);
    EXPECT_THROW(scheme.begin(step), std::logic_error);
    EXPECT_THROW(scheme.flush(), std::logic_error);
    EXPECT_THROW(static_cast<void>(scheme.save()), std::logic_error);
    EXPECT_THROW(scheme.restore({}), std::logic_error);
  });
}

TEST(AveragingMisuseTest, RefusesAnEvaluationCopyOfAnotherSize) {
  with_scheme([](UpdateScheme& scheme) {
    std::vector<float> parameters(4);

    EXPECT_THROW(scheme.copy_for_evaluation(parameters, {}), std::invalid_argument);
  });
}

TEST(AveragingMisuseTest, FlushBeforeTheFirstIterationDoesNothing) {
  with_scheme([](UpdateScheme& scheme) {
    scheme.flush();

    EXPECT_EQ(scheme.counters().global_reductions, 0U);
    EXPECT_EQ(scheme.replicated().size(), 1U);
  });
}

}  // namespace
}  // namespace rondo::sync::averaging_misuse_test
