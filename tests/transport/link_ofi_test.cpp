// The ofi plug-in over tcp keeps every link's promises; its own are in ofi_test.cpp. Compiled only
// where libfabric is found.

#include <memory>
#include <vector>

#include "link_suite.hpp"
#include "links/plugin.hpp"

namespace rondo::transport::link_ofi_test {
namespace {

std::vector<std::unique_ptr<Link>> connected(int size) {
  std::vector<std::unique_ptr<Link>> links;
  for (int rank = 0; rank < size; ++rank) {
    links.push_back(open_plugin(
        "ofi", {.rank = rank, .size = size, .provider = "tcp", .device = "lo", .peers = size - 1}));
  }
  for (const auto& link : links) {
    for (int peer = 0; peer < size; ++peer) {
      link->connect(peer, links[static_cast<std::size_t>(peer)]->address());
    }
  }
  return links;
}

// Receives of ofi_rxm belong to no connection: only a send notices that its peer has gone.
INSTANTIATE_TEST_SUITE_P(
    OfiTcp, LinkTest,
    testing::Values(LinkBackend{
        .name = "tcp", .open = connected, .arms = true, .notices_closing = false}),
    link_backend_name);

}  // namespace
}  // namespace rondo::transport::link_ofi_test
