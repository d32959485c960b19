// Every scheme of the library, in the settings that change what it sends or keeps, and a few
// schemes made of others. A new scheme is one entry here.

#include "sync/schemes_under_test.hpp"

#include <cstddef>
#include <memory>
#include <vector>

#include <rondo/sync/cyclic.hpp>
#include <rondo/sync/hierarchical.hpp>
#include <rondo/sync/k_step.hpp>
#include <rondo/sync/lazy.hpp>
#include <rondo/sync/optimizer.hpp>
#include <rondo/sync/sharded.hpp>
#include <rondo/sync/synchronous.hpp>
#include <rondo/transport/communicator.hpp>
#include <rondo/transport/element.hpp>

#include "sync/periodic_average.hpp"

namespace rondo::sync::test {
namespace {

using transport::Communicator;

LazyOptions lazy_options(const Replica& replica) {
  LazyOptions options{.lazy_layers = 2, .probes = {}, .max_interval = 5};
  for (std::size_t i = 0; i < 2; ++i) {
    options.probes.push_back({replica.layers[i].offset, replica.layers[i].size - 1});
  }
  return options;
}

/// Rounds of 6 steps, averages of pairs after 2 and 4 of them.
HierarchicalOptions levels(Communicator& pair, MomentumKind kind, LocalState local_state) {
  return {.period = 6,
          .levels = {{2, &pair}},
          .momentum = {.kind = kind, .mu = 0.7F},
          .local_state = local_state,
          .clip_norm = 2.0};
}

std::unique_ptr<Optimizer> adam(std::size_t size) { return make_adam(size); }

const std::vector<UnderTest> all{
    {"Synchronous",
     [](const Replica& replica, SharedOptimizer optimizer, Communicator&) {
       return make_synchronous(replica, optimizer, {1024, 512});
     }},
    {"SynchronousClipped",
     [](const Replica& replica, SharedOptimizer optimizer, Communicator&) {
       return make_synchronous(replica, optimizer, {.clip_norm = 2.0});
     }},
    {"SynchronousBf16",
     [](const Replica& replica, SharedOptimizer optimizer, Communicator&) {
       return make_synchronous(replica, optimizer,
                               {.bucket_bytes = 1024,
                                .last_bucket_bytes = 512,
                                .clip_norm = 2.0,
                                .gradient_type = transport::ElementType::bf16});
     }},
    {"Sharded", [](const Replica& replica, SharedOptimizer optimizer,
                   Communicator&) { return make_sharded(replica, optimizer, {1024, 512}); }},
    {"ShardedClippedBf16",
     [](const Replica& replica, SharedOptimizer optimizer, Communicator&) {
       return make_sharded(replica, optimizer,
                           {.bucket_bytes = 1024,
                            .last_bucket_bytes = 512,
                            .clip_norm = 2.0,
                            .gradient_type = transport::ElementType::bf16});
     },
     adam},
    {"LazyBf16",
     [](const Replica& replica, SharedOptimizer optimizer, Communicator&) {
       LazyOptions options = lazy_options(replica);
       options.gradient_type = transport::ElementType::bf16;
       return make_lazy(replica, optimizer, options);
     }},
    {"Lazy", [](const Replica& replica, SharedOptimizer optimizer,
                Communicator&) { return make_lazy(replica, optimizer, lazy_options(replica)); }},
    {"KStep", [](const Replica& replica, SharedOptimizer optimizer,
                 Communicator&) { return make_k_step(replica, optimizer, {.period = 4}); }},
    {"KStepBf16",
     [](const Replica& replica, SharedOptimizer optimizer, Communicator&) {
       return make_k_step(replica, optimizer,
                          {.period = 4, .average_type = transport::ElementType::bf16});
     }},
    {"HierarchicalBf16Overlapped",
     [](const Replica& replica, SharedOptimizer optimizer, Communicator& pair) {
       HierarchicalOptions options = levels(pair, MomentumKind::classical, LocalState::keep);
       options.overlap_steps = 1;
       options.average_type = transport::ElementType::bf16;
       return make_hierarchical(replica, optimizer, options);
     }},
    {"KStepAdaptive",
     [](const Replica& replica, SharedOptimizer optimizer, Communicator&) {
       return make_k_step(replica, optimizer,
                          {.period = 6, .period_of = adaptive(), .sums_losses = true});
     }},
    {"HierarchicalChangingPeriod",
     [](const Replica& replica, SharedOptimizer optimizer, Communicator& pair) {
       HierarchicalOptions options = levels(pair, MomentumKind::slowmo, LocalState::keep);
       options.period_of = [](const RoundStart& round) { return 3 + round.index % 3; };
       return make_hierarchical(replica, optimizer, options);
     }},
    {"KStepOverlapped",
     [](const Replica& replica, SharedOptimizer optimizer, Communicator&) {
       return make_k_step(replica, optimizer,
                          {.period = 4,
                           .momentum = {.kind = MomentumKind::slowmo, .mu = 0.7F},
                           .overlap_steps = 2});
     }},
    {"HierarchicalOverlapped",
     [](const Replica& replica, SharedOptimizer optimizer, Communicator& pair) {
       HierarchicalOptions options = levels(pair, MomentumKind::nesterov, LocalState::keep);
       options.overlap_steps = 9;  // until the next average
       return make_hierarchical(replica, optimizer, options);
     },
     adam},
    {"KStepInFragments",
     [](const Replica& replica, SharedOptimizer optimizer, Communicator&) {
       return make_k_step(replica, optimizer,
                          {.period = 4,
                           .momentum = {.kind = MomentumKind::slowmo, .mu = 0.7F},
                           .overlap_steps = 1,
                           .fragments = 2});
     },
     adam},
    {"HierarchicalInFragmentsBf16",
     [](const Replica& replica, SharedOptimizer optimizer, Communicator& pair) {
       HierarchicalOptions options = levels(pair, MomentumKind::nesterov, LocalState::keep);
       options.fragments = 2;
       options.average_type = transport::ElementType::bf16;
       return make_hierarchical(replica, optimizer, options);
     }},
    {"KStepOuterAdam",
     [](const Replica& replica, SharedOptimizer optimizer, Communicator&) {
       return make_k_step(replica, optimizer,
                          {.period = 4,
                           .outer_optimizer = make_adam(replica.parameters.size()),
                           .outer_learning_rate = 0.01,
                           .overlap_steps = 1});
     }},
    {"HierarchicalClassical",
     [](const Replica& replica, SharedOptimizer optimizer, Communicator& pair) {
       return make_hierarchical(replica, optimizer,
                                levels(pair, MomentumKind::classical, LocalState::keep));
     }},
    {"HierarchicalNesterov",
     [](const Replica& replica, SharedOptimizer optimizer, Communicator& pair) {
       return make_hierarchical(replica, optimizer,
                                levels(pair, MomentumKind::nesterov, LocalState::keep));
     },
     adam},
    {"HierarchicalSlowmo",
     [](const Replica& replica, SharedOptimizer optimizer, Communicator& pair) {
       return make_hierarchical(replica, optimizer,
                                levels(pair, MomentumKind::slowmo, LocalState::average));
     },
     adam},
    {"HierarchicalDiloco",
     [](const Replica& replica, SharedOptimizer optimizer, Communicator& pair) {
       return make_hierarchical(replica, optimizer,
                                levels(pair, MomentumKind::diloco, LocalState::reset));
     },
     [](std::size_t size) { return make_adamw(size, {.weight_decay = 0.1}); }},
    // With a fixed delay, arrivals do not depend on the clock. With means, the content of a push
    // decides how it is scaled.
    {"Cyclic",
     [](const Replica& replica, SharedOptimizer optimizer, Communicator&) {
       return make_cyclic(
           replica, optimizer,
           {.delay = Delay::fixed, .scaling = PushScaling::mean, .epoch_samples = 18});
     }},
    {"WarmUp",
     [](const Replica& replica, SharedOptimizer optimizer, Communicator&) {
       return make_warm_up(make_synchronous(replica, optimizer),
                           make_k_step(replica, optimizer, {.period = 4}), 3);
     }},
    {"PeriodicAverage",
     [](const Replica& replica, SharedOptimizer optimizer, Communicator&) -> Scheme {
       return std::make_unique<PeriodicAverage>(replica, optimizer, 4);
     }},
};

}  // namespace

const std::vector<UnderTest>& schemes_under_test() { return all; }

}  // namespace rondo::sync::test
