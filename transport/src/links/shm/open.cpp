#include "links/shm/open.hpp"
namespace rondo::transport {
std::unique_ptr<Link> open_shm_link(int, std::vector<shm::RankMemory*>, bool) { return nullptr; }
}  // namespace rondo::transport
