#pragma once

#include <cstdint>

namespace rondo::transport {

/// How a reduction joins two elements.
///
/// Ranks are joined in rank order, so the result does not depend on timing. Integers wrap
/// around; with `min` and `max` a NaN on any rank makes the result NaN.
enum class ReduceOp : std::uint8_t { sum, min, max };

}  // namespace rondo::transport
