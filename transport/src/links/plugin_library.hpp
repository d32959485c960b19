#pragma once

#include <string>

#include "links/link_v1.h"

namespace rondo::transport {

/// A plug-in's library, loaded for good.
struct PluginLibrary {
  const rondo_link_v1_table* table = nullptr;
  std::string path;
};

/// Finds and loads librondo-link-`name`.so; see open_plugin() for where and for what it throws.
/// May be called by several threads.
[[nodiscard]] PluginLibrary load_plugin(const std::string& name);

/// Where it would be loaded from; empty when it is in none of the folders.
[[nodiscard]] std::string find_plugin(const std::string& name);

}  // namespace rondo::transport
