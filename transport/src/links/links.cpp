#include <rondo/transport/links.hpp>

#include <utility>

#include "links/plugin.hpp"

namespace rondo::transport {

std::vector<LinkFacts> links() {
  LinkFacts shm;
  shm.name = "shm";
  shm.facts = {"version " RONDO_VERSION};
  std::vector<LinkFacts> all = {std::move(shm)};
  for (PluginFacts& plugin : list_plugins()) {
    all.push_back({.name = std::move(plugin.name),
                   .path = std::move(plugin.path),
                   .problem = std::move(plugin.problem),
                   .facts = std::move(plugin.facts)});
  }
  return all;
}

}  // namespace rondo::transport
