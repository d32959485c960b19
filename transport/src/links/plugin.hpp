#pragma once

#include <memory>
#include <string>
#include <vector>

#include "links/link.hpp"

namespace rondo::transport {

/// How a link between nodes is to be opened.
struct LinkOptions {
  int rank = 0;  ///< in the World
  int size = 1;
  std::string provider;  ///< a UCX_TLS list, a libfabric provider; "" chooses by preference
  std::string device;    ///< network interfaces, comma-separated; "" leaves it to the link
  int peers = 0;         ///< ranks that are likely to be talked to; a hint
};

/// Opens the link of plug-in `name` ("ucx", "ofi").
///
/// The plug-in is a library, librondo-link-NAME.so, that is loaded when it is first needed and
/// never unloaded. It is looked for in the folders of RONDO_PLUGIN_PATH (colon-separated), then
/// beside librondo-transport, then in `rondo/` beside it; the first that exists is taken.
///
/// Loading "ucx" sets UCX_ERROR_SIGNALS, UCX_HANDLE_ERRORS and UCX_WARN_UNUSED_ENV_VARS in the
/// environment unless they are set: UCX reads them while it is loaded, and would take over the
/// host program's signals.
///
/// Throws Error(link_unavailable) that says what was looked for and where, why a library could
/// not be loaded, or why the link could not be opened. Nothing is ever taken instead.
[[nodiscard]] std::unique_ptr<Link> open_plugin(const std::string& name,
                                                const LinkOptions& options);

/// Why plug-in `name` cannot be loaded; empty when it can.
[[nodiscard]] std::string problem_of_plugin(const std::string& name);

/// What is known of one plug-in.
struct PluginFacts {
  std::string name;
  std::string path;                ///< empty when it was not found
  std::string problem;             ///< why it cannot be used; empty when it can
  std::vector<std::string> facts;  ///< "version ...", then "provider NAME ..."
};

/// All plug-ins that this version knows, found or not. Loads those that are found.
[[nodiscard]] std::vector<PluginFacts> list_plugins();

}  // namespace rondo::transport
