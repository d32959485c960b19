// Options, replicas and optimizers that a scheme refuses when it is made, with the reason.
// scheme_contract_test.cpp has the refusals that every scheme shares.

#include <cmath>
#include <cstddef>
#include <functional>
#include <stdexcept>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <rondo/sync/optimizer.hpp>
#include <rondo/sync/period_policy.hpp>
#include <rondo/transport/communicator.hpp>
#include <rondo/transport/world.hpp>

#include "support/error_text.hpp"
#include "support/world.hpp"
#include "sync/arrays.hpp"
#include "sync/given.hpp"

namespace rondo::sync::refusals_test {
namespace {

using rondo::test::World;
using test::Given;
using transport::ElementType;

constexpr std::size_t size = 60;

/// One of two ranks, whose model has layers of 10, 20 and 30 parameters.
struct Rank : Given {
  transport::Communicator& world;
  transport::Communicator& alone;

  /// `change` is made to options that fit.
  void lazy_with(const std::function<void(LazyOptions&)>& change) const {
    LazyOptions options{.lazy_layers = 2, .probes = {{0, 10}, {10, 5}}};
    change(options);
    (void)make_lazy(replica, optimizer, options);
  }
  void with_part(Slices::Part part) {
    replica.slices = {&world, {part}};
    (void)synchronous();
  }
  void with_copy(const Slices::Copy& copy) {
    replica.slices.copies = {copy};
    (void)synchronous();
  }
};

struct Refused {
  const char* reason;  ///< a part of it
  void (*make)(Rank& g);
};

constexpr const char* in_no_layer = "are out of order, none, or in no layer";
constexpr const char* no_part = "which are out of order or not there";
constexpr const char* no_clip_norm = "clip_norm must be 0 (no clipping) or positive";
constexpr const char* negative = "minibatch_cap, clip_norm, epoch_samples and total_samples must";
constexpr const char* own_state = "overlap_steps need a local state that ranks keep";
constexpr const char* no_lazy_layer = "lies within no lazy layer";
constexpr LocalState averaged = LocalState::average;

const Refused refused[] = {
    {"k_step: the global period is 0", [](Rank& g) { (void)g.k_step({.period = 0}); }},
    {"k_step: a reduction momentum of 1.5",
     [](Rank& g) { (void)g.k_step({.momentum = {.mu = 1.5F}}); }},
    {"k_step: a clip_norm of -1.0", [](Rank& g) { (void)g.k_step({.clip_norm = -1.0}); }},
    {"k_step: averages are sent as f32 or bf16",
     [](Rank& g) { (void)g.k_step({.average_type = ElementType::i32}); }},
    {"overlap_steps of -1 are negative", [](Rank& g) { (void)g.k_step({.overlap_steps = -1}); }},
    {own_state, [](Rank& g) { (void)g.k_step({.local_state = averaged, .overlap_steps = 1}); }},
    {own_state,
     [](Rank& g) { (void)g.k_step({.local_state = LocalState::reset, .overlap_steps = 1}); }},
    {"fragments must be at least 1", [](Rank& g) { (void)g.k_step({.fragments = 0}); }},
    {"more than the replica's layers, which are 3",
     [](Rank& g) { (void)g.k_step({.fragments = 4}); }},
    {"more than the steps of a round, which are 2",
     [](Rank& g) { (void)g.k_step({.period = 2, .fragments = 3}); }},
    {"fragments need a local state that ranks keep",
     [](Rank& g) { (void)g.k_step({.local_state = averaged, .fragments = 2}); }},
    {"fragments need a constant period",
     [](Rank& g) { (void)g.k_step({.period_of = adaptive(), .fragments = 2}); }},
    {"read with an outer_optimizer only",
     [](Rank& g) { (void)g.k_step({.outer_learning_rate = 0.5}); }},
    {"takes the place of a reduction momentum",
     [](Rank& g) {
       (void)g.k_step({.momentum = {.mu = 0.5F}, .outer_optimizer = make_sgd(size, {})});
     }},
    {"the outer optimizer is for 7 parameters, and the replica has 60",
     [](Rank& g) { (void)g.k_step({.outer_optimizer = make_sgd(7, {})}); }},
    {"is not positive",
     [](Rank& g) {
       (void)g.k_step({.outer_optimizer = make_sgd(size, {}), .outer_learning_rate = 0.0});
     }},

    {negative, [](Rank& g) { (void)g.cyclic({.minibatch_cap = -1}); }},
    {negative, [](Rank& g) { (void)g.cyclic({.clip_norm = -1.0}); }},
    {negative, [](Rank& g) { (void)g.cyclic({.epoch_samples = -1}); }},
    {negative, [](Rank& g) { (void)g.cyclic({.total_samples = -1}); }},
    {"with fixed delay every turn has a mini-batch",
     [](Rank& g) { (void)g.cyclic({.delay = Delay::fixed, .when_empty = WhenEmpty::skip}); }},
    {"of worker 2 of 2",
     [](Rank& g) { (void)g.cyclic({.script = {{.worker = 2, .minibatches = 1}}}); }},
    {"of worker 0 of 2",
     [](Rank& g) { (void)g.cyclic({.script = {{.worker = 0, .minibatches = 0}}}); }},
    {"layer layer0 has an inner group; the scheme needs whole replicas",
     [](Rank& g) {
       g.replica.layers[0].groups.inner = &g.world;
       (void)g.cyclic({});
     }},

    {"4 layers cannot be lazy, there are 3",
     [](Rank& g) { g.lazy_with([](LazyOptions& o) { o.lazy_layers = 4; }); }},
    {no_lazy_layer, [](Rank& g) { g.lazy_with([](auto& o) { o.probes = {{30, 1}}; }); }},
    {no_lazy_layer, [](Rank& g) { g.lazy_with([](auto& o) { o.probes = {{5, 10}}; }); }},
    {no_lazy_layer, [](Rank& g) { g.lazy_with([](auto& o) { o.probes = {{3, 0}}; }); }},
    {no_lazy_layer, [](Rank& g) { g.lazy_with([](auto& o) { o.probes = {{60, 1}}; }); }},
    {"the probe at 10 is empty",
     [](Rank& g) { g.lazy_with([](auto& o) { o.probes = {{10, 0}}; }); }},
    {"no probe was given", [](Rank& g) { g.lazy_with([](auto& o) { o.probes = {}; }); }},
    {"out of order", [](Rank& g) { g.lazy_with([](auto& o) { o.probes = {{10, 5}, {0, 10}}; }); }},
    {"max_interval is negative",
     [](Rank& g) { g.lazy_with([](auto& o) { o.max_interval = -1; }); }},
    {"layer1 is sharded",
     [](Rank& g) {
       g.replica.layers[1].groups.slice = &g.alone;
       g.lazy_with([](auto&) {});
     }},

    {"as f32 or bf16", [](Rank& g) { (void)g.synchronous({.gradient_type = ElementType::i32}); }},
    {no_clip_norm, [](Rank& g) { (void)g.synchronous({.clip_norm = -1.0}); }},
    {no_clip_norm, [](Rank& g) { (void)g.synchronous({.clip_norm = std::nan("")}); }},
    {"layer layer1 is sharded",
     [](Rank& g) {
       g.replica.layers[1].groups.slice = &g.alone;
       (void)g.synchronous({.clip_norm = 1.0});
     }},
    {no_part, [](Rank& g) { g.with_part({58, 3}); }},
    {no_part, [](Rank& g) { g.with_part({61, 0}); }},
    {in_no_layer, [](Rank& g) { g.with_copy({&g.world, 0, 0}); }},
    {in_no_layer, [](Rank& g) { g.with_copy({&g.world, 8, 4}); }},
    {in_no_layer, [](Rank& g) { g.with_copy({&g.world, 58, 4}); }},
    {"copies in layer layer1 have no holders", [](Rank& g) { g.with_copy({nullptr, 10, 20}); }},

    {"sharded: the optimizer needs whole layers",
     [](Rank& g) {
       g.optimizer = make_lars(size, {.weights = {{0, 10}}});
       (void)g.sharded();
     }},
    {no_clip_norm, [](Rank& g) { (void)g.sharded({.clip_norm = -1.0}); }},
    {"sharded: gradients are sent as f32 or bf16",
     [](Rank& g) { (void)g.sharded({.gradient_type = ElementType::f64}); }},
};

TEST(RefusalsTest, SayWhatDoesNotFit) {
  World{2}.run([](transport::World& world) {
    transport::Communicator alone = world.communicator().split(world.rank());
    test::Arrays arrays(world, {10, 20, 30});
    const auto rank = [&] {
      return Rank{{arrays.replica(), make_sgd(size, {}), alone}, world.communicator(), alone};
    };
    for (const Refused& row : refused) {
      SCOPED_TRACE(row.reason);
      Rank given = rank();
      EXPECT_THAT(rondo::test::error_text<std::invalid_argument>([&] { row.make(given); }),
                  testing::HasSubstr(row.reason));
    }
    Rank fits = rank();
    EXPECT_NO_THROW(fits.lazy_with([](LazyOptions&) {}));
    fits.replica.layers[1].groups.inner = &alone;
    EXPECT_NO_THROW((void)fits.k_step({}));
  });
}

/// A scheme cannot go on from the state that another one, or one with other options, has saved
/// after so many steps, though the model is the same.
struct Mismatch {
  const char* reason;
  test::Scheme (*here)(Given& g);
  test::Scheme (*saved)(Given& g);
  int steps = 0;
};

const Mismatch mismatches[] = {
    {"another choice of overlap_steps",
     [](Given& g) { return g.k_step({.period = 4, .overlap_steps = 2}); },
     [](Given& g) { return g.k_step({.period = 4}); }},
    {"another choice of overlap_steps", [](Given& g) { return g.k_step({.period = 4}); },
     [](Given& g) { return g.k_step({.period = 4, .overlap_steps = 2}); }},
    {"saved with 2 fragments, and here are 3",
     [](Given& g) { return g.k_step({.period = 4, .fragments = 3}); },
     [](Given& g) { return g.k_step({.period = 4, .fragments = 2}); }},
    {"k_step: the state was saved after 3 steps of a round, which has 2 here",
     [](Given& g) { return g.k_step({.period = 2}); },
     [](Given& g) { return g.k_step({.period = 4}); }, 3},
    {"other layers are lazy there", [](Given& g) { return g.lazy({}); },
     [](Given& g) {
       return make_lazy(g.replica, g.optimizer, {.lazy_layers = 3, .probes = {{0, 9}, {10, 19}}});
     }},
    // A share of adam's state is as long as one of adamw's.
    {"of the optimizer adam, and this one is adamw",
     [](Given& g) {
       g.optimizer = make_adamw(size, {});
       return g.sharded();
     },
     [](Given& g) {
       g.optimizer = make_adam(size, {});
       return g.sharded();
     }},
};

TEST(RefusalsTest, SayWhichStateDoesNotFit) {
  World{2}.run([](transport::World& world) {
    for (const Mismatch& row : mismatches) {
      SCOPED_TRACE(row.reason);
      test::Arrays arrays(world, {10, 20, 30});
      Given given{arrays.replica(), make_sgd(size, {}), world.communicator()};
      const test::Scheme saved = row.saved(given);
      const test::Scheme here = row.here(given);
      for (int step = 0; step < row.steps; ++step) {
        test::iterate(*saved, arrays, test::step_of(world, step),
                      [](std::size_t, float) { return 1.0F; });
      }
      const std::vector<std::byte> before = here->save();

      EXPECT_THAT(
          rondo::test::error_text<std::invalid_argument>([&] { here->restore(saved->save()); }),
          testing::HasSubstr(row.reason));
      EXPECT_EQ(here->save(), before);
    }
  });
}

}  // namespace
}  // namespace rondo::sync::refusals_test
