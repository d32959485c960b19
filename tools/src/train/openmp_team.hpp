#pragma once

#include <memory>

#include <rondo/transport/team.hpp>

namespace rondo::tools {

/// The OpenMP threads that the kernels use, lent to transport and optimizer for their flat
/// passes. Null for one thread, and in builds without OpenMP.
[[nodiscard]] std::unique_ptr<transport::Team> make_openmp_team(int threads);

}  // namespace rondo::tools
