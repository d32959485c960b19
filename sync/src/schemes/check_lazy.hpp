#pragma once

#include <cstddef>
#include <span>

#include <rondo/sync/lazy.hpp>

namespace rondo::sync {

/// The lazy layers of `replica`. Throws std::invalid_argument, naming what does not fit, unless
/// they are there, all ranks hold all of them or say what they count, and every probe lies within
/// one of them. Only of a layer in slices a probe may be empty.
[[nodiscard]] std::span<const Layer> checked_lazy_layers(const Replica& replica,
                                                         const LazyOptions& options);

/// The layer that `probe` lies within; throws as above when there is none.
[[nodiscard]] std::size_t layer_of(std::span<const Layer> layers, const Probe& probe);

/// Throws std::invalid_argument unless the window's sum has an effect under `optimizer`.
void check_lazy_optimizer(const Optimizer& optimizer);

}  // namespace rondo::sync
