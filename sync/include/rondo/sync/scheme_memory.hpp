#pragma once

#include <cstddef>
#include <vector>

#include <rondo/sync/export.hpp>
#include <rondo/sync/hierarchical.hpp>
#include <rondo/sync/k_step.hpp>
#include <rondo/sync/lazy.hpp>
#include <rondo/sync/synchronous.hpp>

namespace rondo::sync {

/// The sizes of a rank's part of a model: they are known before there is any array.
struct ReplicaSizes {
  struct Layer {
    std::size_t size = 0;  ///< parameters
    int ranks = 1;         ///< that the layer is summed over: of its `slice` group
  };
  std::vector<Layer> layers = {};  ///< in forward order
  std::size_t statistics = 0;
  std::size_t optimizer_state = 0;  ///< elements of Optimizer::state()
  int replicas = 1;

  [[nodiscard]] RONDO_SYNC_API std::size_t parameters() const noexcept;
};

/// Bytes of the arrays that a scheme allocates when it is made, besides the Replica's and its
/// optimizers': what grows with the model. Requests, counts and copies that are gone after an
/// evaluation, save() or restore() are left out.
///
/// n parameters, s statistics, in bytes:
///   - all: 8 s for the mean of statistics;
///   - synchronous, sharded: 2 n as bf16, of layers that other ranks hold, too;
///   - lazy: 4 for each element of the lazy layers and of the probes that the controller looks at;
///     as bf16 2 for each parameter that other ranks hold, and for each of those probes;
///   - k_step, hierarchical: W, the displacements with what is averaged beside them, and with
///     momentum V; with overlap the displacements and the parameters once more; as bf16 half of
///     the displacements, and what rounding has left out;
///   - cyclic: gradients that are not pushed, and on the first rank of a node the store.
///
/// Throws nothing. Options that a scheme would refuse when it is made are not checked.
[[nodiscard]] RONDO_SYNC_API std::size_t memory_of(const ReplicaSizes& sizes,
                                                   const SynchronousOptions& options);
[[nodiscard]] RONDO_SYNC_API std::size_t memory_of(const ReplicaSizes& sizes,
                                                   const LazyOptions& options);
[[nodiscard]] RONDO_SYNC_API std::size_t memory_of(const ReplicaSizes& sizes,
                                                   const KStepOptions& options);
/// The same for make_cyclic(), whose options do not matter; `has_store`: this rank is the first of
/// its node.
[[nodiscard]] RONDO_SYNC_API std::size_t memory_of_cyclic(const ReplicaSizes& sizes,
                                                          bool has_store);

/// Elements of the optimizer's state that a rank writes under make_sharded(), at most: memory that
/// is never written is never there. A share ends with a cache line, which is counted for each
/// layer.
[[nodiscard]] RONDO_SYNC_API std::size_t sharded_state(const ReplicaSizes& sizes);

/// Bytes of the arrays in what UpdateScheme::save() returns, at the most; those of an outer
/// optimizer are left out. make_sharded() saves sharded_state() instead.
///
/// n parameters, s statistics, in bytes; all save the optimizer's state:
///   - lazy: 4 for each parameter of the lazy layers, within a window;
///   - k_step, hierarchical: 4 n, and with momentum 4 n; where other replicas take part, as bf16
///     4 n, and with overlap 8 n + 4 s;
///   - cyclic: 4 n, and of the rank that has the token 4 n more.
[[nodiscard]] RONDO_SYNC_API std::size_t saved_by(const ReplicaSizes& sizes,
                                                  const SynchronousOptions& options);
[[nodiscard]] RONDO_SYNC_API std::size_t saved_by(const ReplicaSizes& sizes,
                                                  const LazyOptions& options);
[[nodiscard]] RONDO_SYNC_API std::size_t saved_by(const ReplicaSizes& sizes,
                                                  const KStepOptions& options);
/// The same for make_cyclic(). Any rank may have the token.
[[nodiscard]] RONDO_SYNC_API std::size_t saved_by_cyclic(const ReplicaSizes& sizes);

}  // namespace rondo::sync
