#pragma once

#include <string>
#include <vector>

namespace rondo::transport::rendezvous {

/// Who of the ranks did not come: "rank 3 of 4 did not come", "ranks 1, 2 of 4 did not come".
[[nodiscard]] std::string absent(const std::vector<bool>& came);

}  // namespace rondo::transport::rendezvous
