#pragma once

#include <array>
#include <cstdint>

#include <rondo/sync/scheme_base.hpp>
#include <rondo/sync/update_scheme.hpp>

namespace rondo::sync {

/// All counters of a scheme, in the order in which they are saved.
inline constexpr std::array all_counters{
    &SchemeCounters::global_reductions,    &SchemeCounters::lazy_reductions,
    &SchemeCounters::local_reductions,     &SchemeCounters::global_bytes,
    &SchemeCounters::local_bytes,          &SchemeCounters::collectives,
    &SchemeCounters::evaluation_reductions};
static_assert(sizeof(SchemeCounters) == all_counters.size() * sizeof(std::uint64_t));

/// A scheme's counters as a part of its state.
inline void write(ByteWriter& writer, const SchemeCounters& counters) {
  for (const auto counter : all_counters) writer.put(counters.*counter);
}

[[nodiscard]] inline SchemeCounters read_counters(ByteReader& reader) {
  SchemeCounters counters;
  for (const auto counter : all_counters) counters.*counter = reader.get<std::uint64_t>();
  return counters;
}

/// Each counter of both together.
[[nodiscard]] inline SchemeCounters sum(const SchemeCounters& a, const SchemeCounters& b) noexcept {
  SchemeCounters both;
  for (const auto counter : all_counters) both.*counter = a.*counter + b.*counter;
  return both;
}

}  // namespace rondo::sync
