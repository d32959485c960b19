// Every scheme of the library, in the settings that change what it sends or keeps, and a few
// schemes made of others. A new scheme is one entry here.

#include "sync/schemes_under_test.hpp"

#include <cstddef>
#include <memory>
#include <vector>

#include <rondo/sync/optimizer.hpp>
#include <rondo/sync/period_policy.hpp>
#include <rondo/transport/element.hpp>

#include "sync/periodic_average.hpp"

namespace rondo::sync::test {
namespace {

constexpr auto bf16 = transport::ElementType::bf16;
constexpr SynchronousOptions small_buckets{.bucket_bytes = 1024, .last_bucket_bytes = 512};
constexpr SynchronousOptions clipped_bf16{
    .bucket_bytes = 1024, .last_bucket_bytes = 512, .clip_norm = 2.0, .gradient_type = bf16};
constexpr ReductionMomentum slowmo{.kind = MomentumKind::slowmo, .mu = 0.7F};

/// Rounds of 6 steps, averages of pairs after 2 and 4 of them.
KStepOptions levels(const Given& g, MomentumKind kind, LocalState local_state = LocalState::keep) {
  return {.period = 6,
          .levels = {{2, &g.pair}},
          .momentum = {.kind = kind, .mu = 0.7F},
          .local_state = local_state,
          .clip_norm = 2.0};
}

std::unique_ptr<Optimizer> adam(std::size_t size) { return make_adam(size); }
std::unique_ptr<Optimizer> adamw(std::size_t size) {
  return make_adamw(size, {.weight_decay = 0.1});
}

const std::vector<UnderTest> all{
    {"Synchronous", [](const Given& g) { return g.synchronous(small_buckets); }},
    {"SynchronousClipped", [](const Given& g) { return g.synchronous({.clip_norm = 2.0}); }},
    {"SynchronousBf16", [](const Given& g) { return g.synchronous(clipped_bf16); }},
    {"Sharded", [](const Given& g) { return g.sharded(small_buckets); }},
    {"ShardedClippedBf16", [](const Given& g) { return g.sharded(clipped_bf16); }, adam},
    {"Lazy", [](const Given& g) { return g.lazy({.max_interval = 5}); }},
    {"LazyBf16", [](const Given& g) { return g.lazy({.max_interval = 5, .gradient_type = bf16}); }},
    {"LazyEveryLayer",
     [](const Given& g) {
       return g.lazy({.controller = LazyController::every_layer, .updates_per_iteration = true});
     }},
    {"KStep", [](const Given& g) { return g.k_step({.period = 4}); }},
    {"KStepBf16", [](const Given& g) { return g.k_step({.period = 4, .average_type = bf16}); }},
    {"KStepAdaptive",
     [](const Given& g) {
       return g.k_step({.period = 6, .period_of = adaptive(), .sums_losses = true});
     }},
    {"KStepOverlapped",
     [](const Given& g) {
       return g.k_step({.period = 4, .momentum = slowmo, .overlap_steps = 2});
     }},
    {"KStepInFragments",
     [](const Given& g) {
       return g.k_step({.period = 4, .momentum = slowmo, .overlap_steps = 1, .fragments = 2});
     },
     adam},
    {"KStepOuterAdam",
     [](const Given& g) {
       return g.k_step({.period = 4,
                        .outer_optimizer = make_adam(g.replica.parameters.size()),
                        .outer_learning_rate = 0.01,
                        .overlap_steps = 1});
     }},
    {"HierarchicalBf16Overlapped",
     [](const Given& g) {
       KStepOptions options = levels(g, MomentumKind::classical);
       options.overlap_steps = 1;
       options.average_type = bf16;
       return g.hierarchical(options);
     }},
    {"HierarchicalChangingPeriod",
     [](const Given& g) {
       KStepOptions options = levels(g, MomentumKind::slowmo);
       options.period_of = [](const RoundStart& round) { return 3 + round.index % 3; };
       return g.hierarchical(options);
     }},
    {"HierarchicalOverlapped",
     [](const Given& g) {
       KStepOptions options = levels(g, MomentumKind::nesterov);
       options.overlap_steps = 9;  // until the next average
       return g.hierarchical(options);
     },
     adam},
    {"HierarchicalInFragmentsBf16",
     [](const Given& g) {
       KStepOptions options = levels(g, MomentumKind::nesterov);
       options.fragments = 2;
       options.average_type = bf16;
       return g.hierarchical(options);
     }},
    {"HierarchicalClassical",
     [](const Given& g) { return g.hierarchical(levels(g, MomentumKind::classical)); }},
    {"HierarchicalNesterov",
     [](const Given& g) { return g.hierarchical(levels(g, MomentumKind::nesterov)); }, adam},
    {"HierarchicalSlowmo",
     [](const Given& g) {
       return g.hierarchical(levels(g, MomentumKind::slowmo, LocalState::average));
     },
     adam},
    {"HierarchicalDiloco",
     [](const Given& g) {
       return g.hierarchical(levels(g, MomentumKind::diloco, LocalState::reset));
     },
     adamw},
    // With a fixed delay, arrivals do not depend on the clock. With means, the content of a push
    // decides how it is scaled.
    {"Cyclic",
     [](const Given& g) {
       return g.cyclic({.delay = Delay::fixed, .scaling = PushScaling::mean, .epoch_samples = 18});
     }},
    {"WarmUp",
     [](const Given& g) { return make_warm_up(g.synchronous(), g.k_step({.period = 4}), 3); }},
    {"PeriodicAverage",
     [](const Given& g) -> Scheme {
       return std::make_unique<PeriodicAverage>(g.replica, g.optimizer, 4);
     }},
};

}  // namespace

const std::vector<UnderTest>& schemes_under_test() { return all; }

}  // namespace rondo::sync::test
