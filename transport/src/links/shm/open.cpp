#include "links/shm/open.hpp"

#include "links/shm/link.hpp"

namespace rondo::transport {

std::unique_ptr<Link> open_shm_link(int rank, std::vector<shm::RankMemory*> memories,
                                    bool may_sleep) {
  return std::make_unique<links::shm::ShmLink>(rank, memories, may_sleep);
}

}  // namespace rondo::transport
