#pragma once

#include <memory>

#include <rondo/sync/cyclic.hpp>
#include <rondo/sync/hierarchical.hpp>
#include <rondo/sync/k_step.hpp>
#include <rondo/sync/lazy.hpp>
#include <rondo/sync/optimizer.hpp>
#include <rondo/sync/replica.hpp>
#include <rondo/sync/sharded.hpp>
#include <rondo/sync/synchronous.hpp>
#include <rondo/sync/update_scheme.hpp>
#include <rondo/transport/communicator.hpp>

namespace rondo::sync::test {

using Scheme = std::unique_ptr<UpdateScheme>;
using SharedOptimizer = std::shared_ptr<Optimizer>;

/// The parts of which a test makes one scheme or another: a line of a table.
struct Given {
  Replica replica;
  SharedOptimizer optimizer;
  transport::Communicator& pair;  ///< two of the ranks, for schemes with levels

  [[nodiscard]] Scheme synchronous(const SynchronousOptions& options = {}) const {
    return make_synchronous(replica, optimizer, options);
  }
  [[nodiscard]] Scheme sharded(const SynchronousOptions& options = {}) const {
    return make_sharded(replica, optimizer, options);
  }
  [[nodiscard]] Scheme k_step(const KStepOptions& options) const {
    return make_k_step(replica, optimizer, options);
  }
  [[nodiscard]] Scheme hierarchical(const KStepOptions& options) const {
    return make_hierarchical(replica, optimizer, options);
  }
  [[nodiscard]] Scheme cyclic(const CyclicOptions& options = {}) const {
    return make_cyclic(replica, optimizer, options);
  }
  /// The first two layers are lazy, with all but the last of their elements as probes.
  [[nodiscard]] Scheme lazy(LazyOptions options) const {
    options.lazy_layers = 2;
    for (std::size_t i = 0; i < 2; ++i) {
      options.probes.push_back({replica.layers[i].offset, replica.layers[i].size - 1});
    }
    return make_lazy(replica, optimizer, options);
  }
};

}  // namespace rondo::sync::test
