// Options that make no sense for the lazy update are refused.

#include <functional>
#include <stdexcept>
#include <string>

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
std::string refusal(const std::function<void(LazyOptions&)>& change) {
  std::string reason = "accepted";
  rondo::test::World{1}.run([&](transport::World& world) {
    test::Arrays arrays(world, {10, 20, 30});
    LazyOptions options{.lazy_layers = 2, .probes = {{0, 10}, {10, 5}}};
    change(options);
    try {
      static_cast<void>(make_lazy(arrays.replica(), make_sgd(60, {}), options));
    } catch (const std::invalid_argument& error) {
      reason = error.what();
    }
  });
  return reason;
}

TEST(LazyMisuseTest, AcceptsWhatFits) {
  EXPECT_EQ(refusal([](LazyOptions&) {}), "accepted");
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
