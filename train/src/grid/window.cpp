// Windows along one dimension. Intervals are half open; indices of padding are negative, or the
// extent and beyond.

#include <algorithm>

#include <rondo/train/halo.hpp>

namespace rondo::train {
namespace {

constexpr std::int64_t floor_quotient(std::int64_t a, std::int64_t b) noexcept {
  return a >= 0 ? a / b : -((-a + b - 1) / b);
}

constexpr std::int64_t ceiling_quotient(std::int64_t a, std::int64_t b) noexcept {
  return -floor_quotient(-a, b);
}

/// All that the windows of `outputs` cover, padding included.
constexpr Range span_of(const Window& window, Range outputs) noexcept {
  if (outputs.empty()) return {};
  return {outputs.first * window.stride - window.before,
          (outputs.last - 1) * window.stride - window.before + window.kernel};
}

/// Clamped to [0, extent).
constexpr Range clamped(Range range, std::int64_t extent) noexcept {
  const std::int64_t first = std::clamp<std::int64_t>(range.first, 0, extent);
  return {first, std::clamp(range.last, first, extent)};
}

}  // namespace

Reach inputs_read(const Window& window, Range outputs, std::int64_t extent) noexcept {
  const Range covered = span_of(window, outputs);
  // A window may lie in the padding altogether, so neither padding is more than is covered.
  const std::int64_t before =
      std::min<std::int64_t>(covered.last, 0) - std::min<std::int64_t>(covered.first, 0);
  const std::int64_t after = std::max(covered.last, extent) - std::max(covered.first, extent);
  return {clamped(covered, extent), before, after};
}

Reach outputs_fed(const Window& window, Range inputs, std::int64_t extent) noexcept {
  if (inputs.empty()) return {};
  // The first output whose window ends behind inputs.first, the last that begins before
  // inputs.last.
  const Range feeding = {
      ceiling_quotient(inputs.first + window.before - window.kernel + 1, window.stride),
      floor_quotient(inputs.last - 1 + window.before, window.stride) + 1};
  const Range outputs = clamped(feeding, extent);
  if (outputs.empty()) return {outputs, 0, 0};
  const Range covered = span_of(window, outputs);
  return {outputs, inputs.first - covered.first, covered.last - inputs.last};
}

Range inner_outputs(const Window& window, Range outputs, Range held, std::int64_t extent) noexcept {
  Range inner = outputs;
  if (held.first > 0) {
    inner.first =
        std::max(inner.first, ceiling_quotient(held.first + window.before, window.stride));
  }
  if (held.last < extent) {
    const std::int64_t last_start = held.last - window.kernel + window.before;
    inner.last = std::min(inner.last, floor_quotient(last_start, window.stride) + 1);
  }
  return intersection(outputs, {inner.first, std::max(inner.first, inner.last)});
}

}  // namespace rondo::train
