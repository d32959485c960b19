// The link inside a node keeps every link's promises; its own are in shm_link_test.cpp.

#include <memory>
#include <vector>

#include "link_suite.hpp"
#include "links/link.hpp"
#include "shm/memory.hpp"

namespace rondo::transport::link_shm_test {
namespace {

// The ranks' memory outlives their links: it is kept until the next test.
std::vector<std::unique_ptr<Link>> open_all(int size) {
  static std::vector<std::shared_ptr<shm::RankMemory>> owners;
  owners.clear();
  std::vector<shm::RankMemory*> memories;
  for (int rank = 0; rank < size; ++rank) {
    owners.push_back(shm::RankMemory::create(shm::Reserve::of(size), 1));
    memories.push_back(owners.back().get());
  }
  std::vector<std::unique_ptr<Link>> links;
  for (int rank = 0; rank < size; ++rank) links.push_back(open_shm_link(rank, memories, true));
  return links;
}

// Whoever waits sleeps on the rank's doorbell, and learns from the World who has left.
INSTANTIATE_TEST_SUITE_P(
    Shm, LinkTest,
    testing::Values(LinkBackend{
        .name = "shm", .open = open_all, .arms = false, .notices_closing = false}),
    link_backend_name);

}  // namespace
}  // namespace rondo::transport::link_shm_test
