#pragma once

#include <rondo/sync/update_scheme.hpp>

#include "base/byte_reader.hpp"
#include "base/byte_writer.hpp"

namespace rondo::sync {

/// A scheme's counters as a part of its state.
void write(ByteWriter& writer, const SchemeCounters& counters);
[[nodiscard]] SchemeCounters read_counters(ByteReader& reader);

/// Each counter of both together.
[[nodiscard]] SchemeCounters sum(const SchemeCounters& a, const SchemeCounters& b) noexcept;

}  // namespace rondo::sync
