#include "links/plugin_library.hpp"

#include <dlfcn.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <filesystem>
#include <mutex>
#include <string_view>
#include <utility>
#include <vector>

#include <rondo/transport/error.hpp>

#include "links/host_environment.hpp"

namespace rondo::transport {
namespace {

std::string file_of(const std::string& name) { return "librondo-link-" + name + ".so"; }

// The folder of the file that this code was loaded from: librondo-transport, or a program that
// contains it.
std::filesystem::path own_folder() {
  Dl_info info{};
  if (::dladdr(reinterpret_cast<const void*>(&own_folder), &info) == 0) return {};
  std::error_code error;
  const auto real = std::filesystem::canonical(info.dli_fname, error);
  return error ? std::filesystem::path() : real.parent_path();
}

std::vector<std::filesystem::path> folders() {
  std::vector<std::filesystem::path> found;
  if (const char* list = std::getenv("RONDO_PLUGIN_PATH"); list != nullptr) {
    std::string_view rest = list;
    while (!rest.empty()) {
      const std::string_view folder = rest.substr(0, rest.find(':'));
      if (!folder.empty()) found.emplace_back(folder);
      rest.remove_prefix(std::min(folder.size() + 1, rest.size()));
    }
  }
  if (const auto own = own_folder(); !own.empty()) {
    found.push_back(own);
    found.push_back(own / "rondo");
  }
  return found;
}

[[noreturn]] void fail_absent(const std::string& name) {
  std::string looked;
  for (const auto& folder : folders()) looked += (looked.empty() ? "" : ", ") + folder.string();
  throw Error(Errc::link_unavailable, "the link plug-in '" + name + "' is not installed: no " +
                                          file_of(name) + " in " + looked +
                                          "; install it, or name its folder in RONDO_PLUGIN_PATH");
}

// UCX reads these while its library is loaded, and no later.
void prepare_environment(const std::string& name) {
  if (name != "ucx") return;
  constexpr std::array<std::pair<const char*, const char*>, 3> settings = {
      {{"UCX_ERROR_SIGNALS", ""},
       {"UCX_HANDLE_ERRORS", "none"},
       {"UCX_WARN_UNUSED_ENV_VARS", "n"}}};
  add_to_environment(settings);
}

const rondo_link_v1_table* table_in(void* library, const std::string& path) {
  const auto* table =
      static_cast<const rondo_link_v1_table*>(::dlsym(library, RONDO_LINK_V1_SYMBOL));
  if (table == nullptr) {
    throw Error(Errc::link_unavailable,
                path + " is not a link plug-in: it has no symbol " RONDO_LINK_V1_SYMBOL);
  }
  if (table->version != 1) {
    throw Error(Errc::link_unavailable, path + " speaks version " + std::to_string(table->version) +
                                            " of the plug-in interface, not 1; plug-in and "
                                            "librondo-transport must be of one release");
  }
  return table;
}

}  // namespace

std::string find_plugin(const std::string& name) {
  for (const auto& folder : folders()) {
    const auto candidate = folder / file_of(name);
    if (::access(candidate.c_str(), F_OK) == 0) return candidate.string();
  }
  return {};
}

PluginLibrary load_plugin(const std::string& name) {
  static std::mutex one_at_a_time;  // the environment, and the constructors of what is loaded
  const std::scoped_lock lock(one_at_a_time);
  PluginLibrary found{.table = nullptr, .path = find_plugin(name)};
  if (found.path.empty()) fail_absent(name);
  prepare_environment(name);
  void* library = ::dlopen(found.path.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  if (library == nullptr) {
    throw Error(Errc::link_unavailable,
                "the link plug-in " + found.path + " cannot be loaded: " + ::dlerror() +
                    "; install what it needs, or name another folder in RONDO_PLUGIN_PATH");
  }
  found.table = table_in(library, found.path);
  return found;
}

}  // namespace rondo::transport
