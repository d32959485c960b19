// Options, replicas and optimizers that make no sense for the lazy update are refused.

#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <rondo/sync/lazy.hpp>
#include <rondo/transport/communicator.hpp>

#include "support/world.hpp"
#include "sync/arrays.hpp"

namespace rondo::sync::lazy_misuse_test {
namespace {

using testing::HasSubstr;

/// The reason why make_lazy refuses what `change` has made of arguments that fit.
std::string refusal(
    const std::function<void(Replica&, std::shared_ptr<Optimizer>&, LazyOptions&)>& change) {
  std::string reason = "accepted";
  rondo::test::World{1}.run([&](transport::World& world) {
    test::Arrays arrays(world, {10, 20, 30});
    Replica replica = arrays.replica();
    std::shared_ptr<Optimizer> optimizer = make_sgd(60, {});
    LazyOptions options{.lazy_layers = 2, .probes = {{0, 10}, {10, 5}}};
    change(replica, optimizer, options);
    try {
      static_cast<void>(make_lazy(replica, optimizer, options));
    } catch (const std::invalid_argument& error) {
      reason = error.what();
    }
  });
  return reason;
}

std::string refusal(const std::function<void(LazyOptions&)>& change) {
  return refusal([&](Replica&, std::shared_ptr<Optimizer>&, LazyOptions& o) { change(o); });
}

TEST(LazyMisuseTest, AcceptsWhatFits) {
  EXPECT_EQ(refusal([](LazyOptions&) {}), "accepted");
}

TEST(LazyMisuseTest, RefusesOptimizersThatIgnoreScale) {
  EXPECT_THAT(refusal([](Replica&, std::shared_ptr<Optimizer>& optimizer, LazyOptions&) {
                optimizer = make_adam(60, {});
              }),
              HasSubstr("ignores the scale of gradients"));
}

TEST(LazyMisuseTest, RefusesNoOptimizer) {
  EXPECT_THAT(refusal([](Replica&, std::shared_ptr<Optimizer>& optimizer, LazyOptions&) {
                optimizer = nullptr;
              }),
              HasSubstr("no optimizer"));
}

TEST(LazyMisuseTest, RefusesAnOptimizerOfAnotherSize) {
  EXPECT_THAT(refusal([](Replica&, std::shared_ptr<Optimizer>& optimizer, LazyOptions&) {
                optimizer = make_sgd(61, {});
              }),
              HasSubstr("lazy: the optimizer is for 61 parameters, the replica has 60"));
}

TEST(LazyMisuseTest, RefusesLayersThatAreNotThere) {
  EXPECT_THAT(refusal([](LazyOptions& o) { o.lazy_layers = 4; }),
              HasSubstr("4 layers cannot be lazy, there are 3"));
}

TEST(LazyMisuseTest, RefusesProbesThatLieWithinNoLazyLayer) {
  for (const Probe probe : {Probe{30, 1}, Probe{5, 10}, Probe{3, 0}, Probe{60, 1}}) {
    EXPECT_THAT(refusal([probe](LazyOptions& o) { o.probes = {probe}; }),
                HasSubstr("lies within no lazy layer"));
  }
  EXPECT_THAT(refusal([](LazyOptions& o) { o.probes = {{10, 0}}; }),
              HasSubstr("the probe at 10 is empty"));
  EXPECT_THAT(refusal([](LazyOptions& o) { o.probes = {}; }), HasSubstr("no probe was given"));
  EXPECT_THAT(refusal([](LazyOptions& o) { o.probes = {{10, 5}, {0, 10}}; }),
              HasSubstr("out of order"));
}

TEST(LazyMisuseTest, RefusesANegativeCap) {
  EXPECT_THAT(refusal([](LazyOptions& o) { o.max_interval = -1; }), HasSubstr("negative"));
}

TEST(LazyMisuseTest, RefusesLazyLayersThatAreSharded) {
  rondo::test::World{2}.run([](transport::World& world) {
    transport::Communicator alone = world.communicator().split(world.rank());
    test::Arrays arrays(world, {10, 20, 30});
    Replica replica = arrays.replica();
    replica.layers[1].groups.slice = &alone;
    std::string reason;

    try {
      static_cast<void>(
          make_lazy(replica, make_sgd(60, {}), {.lazy_layers = 2, .probes = {{0, 10}, {10, 5}}}));
    } catch (const std::invalid_argument& error) {
      reason = error.what();
    }

    EXPECT_THAT(reason, HasSubstr("layer1 is sharded"));
  });
}

}  // namespace
}  // namespace rondo::sync::lazy_misuse_test
