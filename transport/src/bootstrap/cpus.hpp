#pragma once

#include <sched.h>

#include <vector>

namespace rondo::transport::rendezvous {

/// Where the calling thread may run.
[[nodiscard]] cpu_set_t own_cpus();

/// Would ranks that may run on these CPUs (one set each) have to share them? Respects the
/// control group's quota, too.
[[nodiscard]] bool outnumber_cpus(const std::vector<cpu_set_t>& ranks);

}  // namespace rondo::transport::rendezvous
