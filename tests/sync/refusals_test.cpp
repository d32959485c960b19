// Options, replicas and optimizers that a scheme refuses when it is made, with the reason.
// scheme_contract_test.cpp has the refusals that every scheme shares.

#include <cmath>
#include <cstddef>
#include <functional>
#include <memory>
#include <stdexcept>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <rondo/sync/cyclic.hpp>
#include <rondo/sync/k_step.hpp>
#include <rondo/sync/lazy.hpp>
#include <rondo/sync/optimizer.hpp>
#include <rondo/sync/period_policy.hpp>
#include <rondo/sync/sharded.hpp>
#include <rondo/sync/synchronous.hpp>
#include <rondo/transport/communicator.hpp>
#include <rondo/transport/world.hpp>

#include "support/error_text.hpp"
#include "support/world.hpp"
#include "sync/arrays.hpp"

namespace rondo::sync::refusals_test {
namespace {

using transport::ElementType;

constexpr std::size_t size = 60;

/// One of two ranks, whose model has layers of 10, 20 and 30 parameters.
struct Given {
  Replica replica;
  transport::Communicator& world;
  transport::Communicator& alone;

  void make(const KStepOptions& options) const { (void)make_k_step(replica, sgd(), options); }
  void make(const CyclicOptions& options) const { (void)make_cyclic(replica, sgd(), options); }
  void make(const SynchronousOptions& options) const {
    (void)make_synchronous(replica, sgd(), options);
  }
  void make_sharded_by(std::unique_ptr<Optimizer> optimizer,
                       const SynchronousOptions& options = {}) const {
    (void)make_sharded(replica, std::move(optimizer), options);
  }
  /// `change` is made to options that fit.
  void make_lazy_with(const std::function<void(LazyOptions&)>& change) const {
    LazyOptions options{.lazy_layers = 2, .probes = {{0, 10}, {10, 5}}};
    change(options);
    (void)make_lazy(replica, sgd(), options);
  }
  void make_with_part(Slices::Part part) {
    replica.slices = {&world, {part}};
    make(SynchronousOptions{});
  }
  void make_with_copy(const Slices::Copy& copy) {
    replica.slices.copies = {copy};
    make(SynchronousOptions{});
  }
  static std::unique_ptr<Optimizer> sgd(const SgdOptions& options = {}) {
    return make_sgd(size, options);
  }
};

struct Refused {
  const char* reason;  ///< a part of it
  void (*make)(Given& g);
};

constexpr const char* in_no_layer = "are out of order, none, or in no layer";
constexpr const char* no_part = "which are out of order or not there";
constexpr const char* no_clip_norm = "clip_norm must be 0 (no clipping) or positive";
constexpr const char* negative = "minibatch_cap, clip_norm, epoch_samples and total_samples must";
constexpr const char* own_state = "overlap_steps need a local state that ranks keep";
constexpr const char* no_lazy_layer = "lies within no lazy layer";
constexpr LocalState averaged = LocalState::average;

const Refused refused[] = {
    {"k_step: the global period is 0", [](Given& g) { g.make(KStepOptions{.period = 0}); }},
    {"k_step: a reduction momentum of 1.5",
     [](Given& g) { g.make(KStepOptions{.momentum = {.mu = 1.5F}}); }},
    {"k_step: a clip_norm of -1.0", [](Given& g) { g.make(KStepOptions{.clip_norm = -1.0}); }},
    {"k_step: averages are sent as f32 or bf16",
     [](Given& g) { g.make(KStepOptions{.average_type = ElementType::i32}); }},
    {"overlap_steps of -1 are negative",
     [](Given& g) { g.make(KStepOptions{.overlap_steps = -1}); }},
    {own_state,
     [](Given& g) { g.make(KStepOptions{.local_state = averaged, .overlap_steps = 1}); }},
    {own_state,
     [](Given& g) { g.make(KStepOptions{.local_state = LocalState::reset, .overlap_steps = 1}); }},
    {"fragments must be at least 1", [](Given& g) { g.make(KStepOptions{.fragments = 0}); }},
    {"more than the replica's layers, which are 3",
     [](Given& g) { g.make(KStepOptions{.fragments = 4}); }},
    {"more than the steps of a round, which are 2",
     [](Given& g) { g.make(KStepOptions{.period = 2, .fragments = 3}); }},
    {"fragments need a local state that ranks keep",
     [](Given& g) { g.make(KStepOptions{.local_state = averaged, .fragments = 2}); }},
    {"fragments need a constant period",
     [](Given& g) { g.make(KStepOptions{.period_of = adaptive(), .fragments = 2}); }},
    {"read with an outer_optimizer only",
     [](Given& g) { g.make(KStepOptions{.outer_learning_rate = 0.5}); }},
    {"takes the place of a reduction momentum",
     [](Given& g) {
       g.make(KStepOptions{.momentum = {.mu = 0.5F}, .outer_optimizer = Given::sgd()});
     }},
    {"the outer optimizer is for 7 parameters, and the replica has 60",
     [](Given& g) { g.make(KStepOptions{.outer_optimizer = make_sgd(7, {})}); }},
    {"is not positive",
     [](Given& g) {
       g.make(KStepOptions{.outer_optimizer = Given::sgd(), .outer_learning_rate = 0.0});
     }},

    {negative, [](Given& g) { g.make(CyclicOptions{.minibatch_cap = -1}); }},
    {negative, [](Given& g) { g.make(CyclicOptions{.clip_norm = -1.0}); }},
    {negative, [](Given& g) { g.make(CyclicOptions{.epoch_samples = -1}); }},
    {negative, [](Given& g) { g.make(CyclicOptions{.total_samples = -1}); }},
    {"with fixed delay every turn has a mini-batch",
     [](Given& g) { g.make(CyclicOptions{.delay = Delay::fixed, .when_empty = WhenEmpty::skip}); }},
    {"of worker 2 of 2",
     [](Given& g) { g.make(CyclicOptions{.script = {{.worker = 2, .minibatches = 1}}}); }},
    {"of worker 0 of 2",
     [](Given& g) { g.make(CyclicOptions{.script = {{.worker = 0, .minibatches = 0}}}); }},
    {"layer layer0 has an inner group; the scheme needs whole replicas",
     [](Given& g) {
       g.replica.layers[0].groups.inner = &g.world;
       g.make(CyclicOptions{});
     }},

    {"4 layers cannot be lazy, there are 3",
     [](Given& g) { g.make_lazy_with([](LazyOptions& o) { o.lazy_layers = 4; }); }},
    {no_lazy_layer, [](Given& g) { g.make_lazy_with([](auto& o) { o.probes = {{30, 1}}; }); }},
    {no_lazy_layer, [](Given& g) { g.make_lazy_with([](auto& o) { o.probes = {{5, 10}}; }); }},
    {no_lazy_layer, [](Given& g) { g.make_lazy_with([](auto& o) { o.probes = {{3, 0}}; }); }},
    {no_lazy_layer, [](Given& g) { g.make_lazy_with([](auto& o) { o.probes = {{60, 1}}; }); }},
    {"the probe at 10 is empty",
     [](Given& g) { g.make_lazy_with([](auto& o) { o.probes = {{10, 0}}; }); }},
    {"no probe was given", [](Given& g) { g.make_lazy_with([](auto& o) { o.probes = {}; }); }},
    {"out of order",
     [](Given& g) { g.make_lazy_with([](auto& o) { o.probes = {{10, 5}, {0, 10}}; }); }},
    {"max_interval is negative",
     [](Given& g) { g.make_lazy_with([](auto& o) { o.max_interval = -1; }); }},
    {"layer1 is sharded",
     [](Given& g) {
       g.replica.layers[1].groups.slice = &g.alone;
       g.make_lazy_with([](auto&) {});
     }},

    {"as f32 or bf16",
     [](Given& g) { g.make(SynchronousOptions{.gradient_type = ElementType::i32}); }},
    {no_clip_norm, [](Given& g) { g.make(SynchronousOptions{.clip_norm = -1.0}); }},
    {no_clip_norm, [](Given& g) { g.make(SynchronousOptions{.clip_norm = std::nan("")}); }},
    {"layer layer1 is sharded",
     [](Given& g) {
       g.replica.layers[1].groups.slice = &g.alone;
       g.make(SynchronousOptions{.clip_norm = 1.0});
     }},
    {no_part, [](Given& g) { g.make_with_part({58, 3}); }},
    {no_part, [](Given& g) { g.make_with_part({61, 0}); }},
    {in_no_layer, [](Given& g) { g.make_with_copy({&g.world, 0, 0}); }},
    {in_no_layer, [](Given& g) { g.make_with_copy({&g.world, 8, 4}); }},
    {in_no_layer, [](Given& g) { g.make_with_copy({&g.world, 58, 4}); }},
    {"copies in layer layer1 have no holders",
     [](Given& g) { g.make_with_copy({nullptr, 10, 20}); }},

    {"sharded: the optimizer needs whole layers",
     [](Given& g) { g.make_sharded_by(make_lars(size, {.weights = {{0, 10}}})); }},
    {no_clip_norm, [](Given& g) { g.make_sharded_by(Given::sgd(), {.clip_norm = -1.0}); }},
    {"sharded: gradients are sent as f32 or bf16",
     [](Given& g) { g.make_sharded_by(Given::sgd(), {.gradient_type = ElementType::f64}); }},
};

TEST(RefusalsTest, SayWhatDoesNotFit) {
  rondo::test::World{2}.run([](transport::World& world) {
    transport::Communicator alone = world.communicator().split(world.rank());
    test::Arrays arrays(world, {10, 20, 30});
    for (const Refused& row : refused) {
      SCOPED_TRACE(row.reason);
      Given given{arrays.replica(), world.communicator(), alone};
      EXPECT_THAT(rondo::test::error_text<std::invalid_argument>([&] { row.make(given); }),
                  testing::HasSubstr(row.reason));
    }
  });
}

TEST(RefusalsTest, AreForWhatDoesNotFitAlone) {
  rondo::test::World{2}.run([](transport::World& world) {
    transport::Communicator alone = world.communicator().split(world.rank());
    test::Arrays arrays(world, {10, 20, 30});
    Given given{arrays.replica(), world.communicator(), alone};
    EXPECT_NO_THROW(given.make_lazy_with([](LazyOptions&) {}));
    given.replica.layers[1].groups.inner = &alone;
    EXPECT_NO_THROW(given.make(KStepOptions{}));
  });
}

}  // namespace
}  // namespace rondo::sync::refusals_test
