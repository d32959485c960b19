#pragma once

#include <memory>
#include <vector>

#include "links/link.hpp"
#include "shm/memory.hpp"

namespace rondo::transport {

/// Opens this rank's link to the ranks whose memory it has mapped; once per World.
///
/// `memories` has one entry per rank of the World, null for those out of reach; they outlive the
/// link. Ranks that are threads of one process may pass the same objects. With `may_sleep`, a
/// rank that sleeps while it waits is woken by what others do for it.
///
/// Peers may open theirs at any time; what was sent and done can be received even after the
/// sender has closed its link. Throws Error(out_of_memory).
[[nodiscard]] std::unique_ptr<Link> open_shm_link(int rank, std::vector<shm::RankMemory*> memories,
                                                  bool may_sleep);

}  // namespace rondo::transport
