#pragma once

#include <string>

#include <rondo/train/trainer.hpp>

namespace rondo::tools {

/// What a run has cost in communication, beside what synchronous updates would have: a line each
/// for reductions, bytes, time and injected delays. Ends without a line break.
[[nodiscard]] std::string format_summary(const train::RunSummary& summary);

}  // namespace rondo::tools
