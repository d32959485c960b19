#include "grid/local_windows.hpp"

#include <algorithm>

namespace rondo::train {
namespace {

/// Up to stride - 1 inputs behind the last window make no output more.
LocalWindow forward_window(const Reach& reach, const Window& window, Range held) noexcept {
  const std::int64_t skipped = held.last - reach.range.last;
  const bool all = !reach.range.empty() && reach.range.first == held.first && 0 < skipped &&
                   skipped < window.stride;
  return {all ? held : reach.range, reach.before, reach.after};
}

LocalWindow backward_window(const Reach& reach, const Window& window, Range own) noexcept {
  LocalWindow local{own, std::max<std::int64_t>(reach.before, 0),
                    std::max<std::int64_t>(reach.after, 0)};
  local.inputs.first += local.before - reach.before;
  const std::int64_t skipped = local.after - reach.after;
  if (skipped >= window.stride) local.inputs.last -= skipped;
  return local;
}

}  // namespace

LocalWindows forward_windows(const Halo& halo, const Windows& windows, const Box& held) noexcept {
  return {forward_window(halo.h, windows.h, held.h), forward_window(halo.w, windows.w, held.w)};
}

LocalWindows backward_windows(const Halo& halo, const Windows& windows) noexcept {
  return {backward_window(halo.h, windows.h, halo.own.h),
          backward_window(halo.w, windows.w, halo.own.w)};
}

}  // namespace rondo::train
