#pragma once

#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "message/link.hpp"

namespace rondo::transport {

/// Why a plug-in can open no link, and what to do about it.
class OpenError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// The exports of a link plug-in (librondo-link-NAME.so).
///
/// A plug-in and librondo-transport share C++ classes, so both must be of one release: `release` is
/// compared before anything else of the plug-in is used. It stays the first member for ever.
struct LinkPlugin {
  const char* release;  ///< RONDO_VERSION
  /// Opens a link. Throws std::exception that says what was wrong and what to do: an OpenError.
  std::unique_ptr<Link> (*open)(const LinkOptions& options);
  /// One line a fact, for `rondo info`: "version ..." first, then "provider NAME ...". May be
  /// called by any thread, without a link. Throws std::exception.
  std::string (*describe)();
};

/// Defined by each plug-in, and looked up by name.
extern "C" __attribute__((visibility("default"))) const LinkPlugin rondo_link_plugin;

/// Opens the link of plug-in `name` ("ucx", "ofi"), or "tcp", which is built in.
///
/// The plug-in is loaded when it is first needed and never unloaded. It is looked for in the
/// folders of RONDO_PLUGIN_PATH (colon-separated), then beside librondo-transport, then in `rondo/`
/// beside it; the first that exists is used.
///
/// Loading "ucx" sets UCX_ERROR_SIGNALS, UCX_HANDLE_ERRORS and UCX_WARN_UNUSED_ENV_VARS in the
/// environment unless they are set: UCX reads them while it is loaded, and would take over the
/// host program's signals.
///
/// Another program loads it first, which may be ended by it: this one is not.
///
/// Throws Error(link_unavailable) that says what was looked for and where, why a library could
/// not be loaded, or why the link could not be opened. No other link is ever used instead.
[[nodiscard]] std::unique_ptr<Link> open_plugin(const std::string& name,
                                                const LinkOptions& options);

/// Loads the plug-in `file` ("librondo-pmix.so") for good, as open_plugin() does, and returns its
/// object `symbol`, whose first member is its release. `what` names it in errors.
[[nodiscard]] const void* load_plugin_object(const std::string& file, const std::string& what,
                                             const char* symbol);

/// Why plug-in `name` cannot be loaded; empty when it can.
[[nodiscard]] std::string problem_of_plugin(const std::string& name);

/// Where plug-in `name` would be loaded from; empty when it is in none of the folders.
[[nodiscard]] std::string find_plugin(const std::string& name);

/// Adds the variables that are not set to the environment of this process, for a library that is
/// about to read them.
///
/// Other threads of the program may read the environment meanwhile. setenv() would free the array
/// that they read; this puts another in its place, and frees neither. So it is for a few variables,
/// once. (Nothing helps a program that writes its environment while other threads run.)
inline void add_to_environment(std::span<const std::pair<const char*, const char*>> settings) {
  // Kept for ever, and in reach of tools that look for leaks.
  static auto& kept = *new std::vector<std::unique_ptr<char*[]>>;
  static auto& texts = *new std::vector<std::unique_ptr<std::string>>;
  std::vector<char*> entries;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    entries.push_back(*entry);
  }
  const std::size_t before = entries.size();
  for (const auto& [name, value] : settings) {
    if (std::getenv(name) != nullptr) continue;
    texts.push_back(std::make_unique<std::string>(std::string(name) + "=" + value));
    entries.push_back(texts.back()->data());
  }
  if (entries.size() == before) return;
  kept.push_back(std::make_unique<char*[]>(entries.size() + 1));  // ends with a null pointer
  std::ranges::copy(entries, kept.back().get());
  // Release: whoever finds the array finds what it holds.
  __atomic_store_n(&environ, kept.back().get(), __ATOMIC_RELEASE);
}

}  // namespace rondo::transport
