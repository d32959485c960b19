#pragma once

#include <string>

#include <rondo/train/experiment.hpp>
#include <rondo/transport/world.hpp>

namespace rondo::tools {

/// The transport's options that `experiment` asks for; stalls are reported by report_stall().
[[nodiscard]] transport::WorldOptions world_options(const train::Experiment& experiment);

/// Writes one line about a stalled operation to stderr.
void report_stall(const transport::Stall& stall);

/// auto, spin, yield or block.
[[nodiscard]] transport::Waiting waiting_from(const std::string& name);

}  // namespace rondo::tools
