#include "recorder/snapshot.hpp"

#include <algorithm>
#include <optional>

namespace rondo::transport::recorder {
namespace {

std::optional<EntryCopy> copy(const Entry& entry) {
  constexpr auto relaxed = std::memory_order_relaxed;
  EntryCopy copy;
  // Acquire: what is read below is at least as new.
  copy.index = entry.index.load(std::memory_order_acquire);
  if (copy.index == 0) return std::nullopt;
  copy.number = entry.number.load(relaxed);
  copy.operation = entry.operation.load(relaxed);
  copy.type = entry.type.load(relaxed);
  copy.reduction = entry.reduction.load(relaxed);
  copy.stage = entry.stage.load(relaxed);
  copy.partner = entry.partner.load(relaxed);
  copy.count = entry.count.load(relaxed);
  copy.bytes = entry.bytes.load(relaxed);
  copy.posted = entry.posted.load(relaxed);
  copy.started = entry.started.load(relaxed);
  copy.ended = entry.ended.load(relaxed);
  // Had anything of a later operation been read, its index or 0 would be seen now: pairs with
  // the fence in record().
  std::atomic_thread_fence(std::memory_order_acquire);
  if (entry.index.load(relaxed) != copy.index) return std::nullopt;
  return copy;
}

}  // namespace

std::vector<EntryCopy> copy_entries(const Log& log) {
  std::vector<EntryCopy> copies;
  copies.reserve(log_entries);
  for (const Entry& entry : log.ring) {
    if (const auto found = copy(entry)) copies.push_back(*found);
  }
  std::ranges::sort(copies, {}, &EntryCopy::index);
  return copies;
}

TickScale::TickScale(const Moment& began, const Moment& now) noexcept
    : first_(began.ticks),
      nanoseconds_per_tick_(now.ticks > began.ticks
                                ? static_cast<double>(now.monotonic_ns - began.monotonic_ns) /
                                      static_cast<double>(now.ticks - began.ticks)
                                : 1.0) {}

double TickScale::microseconds(std::uint64_t ticks) const noexcept {
  // Signed: a core's counter may lag by a few ticks.
  const auto since = static_cast<std::int64_t>(ticks - first_);
  return static_cast<double>(since) * nanoseconds_per_tick_ / 1e3;
}

}  // namespace rondo::transport::recorder
