#pragma once

namespace rondo::tools {

/// Gives the calling thread the CPUs with which the process was started. To be called first in
/// main(): other threads and processes inherit them from there.
void restore_initial_cpus();

}  // namespace rondo::tools
