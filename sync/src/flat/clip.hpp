#pragma once

namespace rondo::sync::flat {

/// Clipping by the global norm (Pascanu, Mikolov, Bengio 2013): what a gradient that is about to be
/// multiplied by `scale` must be multiplied by as well, so that it is no longer than `max_norm`:
///
///     min(1, max_norm / (scale * sqrt(squared_norm)))
///
/// `squared_norm` is that of the unscaled gradient over all layers; see ModelSums. A max_norm
/// of 0 means no clipping: exactly 1. Ranks that pass the same numbers get the same bits. A norm
/// that is not a number gives 1, so that the parameters show it.
[[nodiscard]] double clip_factor(double squared_norm, double scale, double max_norm) noexcept;

}  // namespace rondo::sync::flat
