#pragma once

#include <memory>
#include <vector>

#include "links/link.hpp"
#include "shm/rank_memory.hpp"

namespace rondo::transport {

/// The link between ranks that can map each other's memory. `memories` has one entry per rank of
/// the World, null for those out of reach; they outlive the link. With `may_sleep` a rank that is
/// sent something is woken.
[[nodiscard]] std::unique_ptr<Link> open_shm_link(int rank, std::vector<shm::RankMemory*> memories,
                                                  bool may_sleep);

}  // namespace rondo::transport
