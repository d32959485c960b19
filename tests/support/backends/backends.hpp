#pragma once

// Which ways between nodes this build has. One file each for a link that was found and for one
// that was not.

#include <vector>

#include "support/world.hpp"

namespace rondo::test {

[[nodiscard]] std::vector<Backend> ucx_backends();
[[nodiscard]] std::vector<Backend> ofi_backends();

/// All of them, and those that every build has.
[[nodiscard]] inline std::vector<Backend> node_backends() {
  std::vector<Backend> all = {Backend::shm_nodes, Backend::hierarchy};
  for (const auto& found : {ucx_backends(), ofi_backends()}) {
    all.insert(all.end(), found.begin(), found.end());
  }
  return all;
}

}  // namespace rondo::test
