#pragma once

// Which ways between nodes this build has: tests/transport/meson.build defines a macro for each
// link that it has found.

#include <vector>

#include "support/world.hpp"

namespace rondo::test {

[[nodiscard]] inline std::vector<Backend> node_backends() {
  return {
      Backend::shm_nodes, Backend::hierarchy, Backend::tcp,
#ifdef RONDO_TEST_UCX
      Backend::ucx_tcp,   Backend::ucx_shm,
#endif
#ifdef RONDO_TEST_OFI
      Backend::ofi_tcp,
#endif
  };
}

/// The ways between nodes, and one node before them.
[[nodiscard]] inline std::vector<Backend> all_backends() {
  std::vector<Backend> all = node_backends();
  all.insert(all.begin(), Backend::shm);
  return all;
}

/// May this way end a process whose peer closes a connection? An assertion of UCX 1.18's TCP fails
/// where both ranks connect, and one of them closes before the other knows (tcp_ep.c,
/// uct_tcp_ep_destroy_progress).
[[nodiscard]] constexpr bool may_abort_at_a_failure([[maybe_unused]] Backend backend) {
#ifdef RONDO_TEST_UCX_ASSERTS
  return backend == Backend::ucx_tcp;
#else
  return false;
#endif
}

}  // namespace rondo::test
