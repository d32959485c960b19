// Update schemes from libraries of users' own. Nothing of a library but its version is used before
// that is known to be this one's. An error of a plug-in names the key and the file.

#include "schemes/scheme_plugin.hpp"

#include <dlfcn.h>

#include <exception>
#include <filesystem>
#include <map>
#include <memory>
#include <new>
#include <string>
#include <system_error>

#include <rondo/sync/scheme_plugin.hpp>
#include <rondo/transport/error.hpp>

#include "config/key.hpp"

namespace rondo::train {
namespace {

constexpr const char* plugin_key = "update.plugin";
constexpr const char* symbol = "rondo_scheme_plugin";

// A file of that name, relative to the working folder, comes before those that the loader finds.
std::string path_of(const std::string& file) {
  std::error_code failure;
  const std::filesystem::path absolute = std::filesystem::absolute(file, failure);
  return !failure && std::filesystem::exists(absolute, failure) ? absolute.string() : file;
}

const sync::SchemePlugin& load(const std::string& file) {
  void* const library = ::dlopen(path_of(file).c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  if (library == nullptr) {
    refuse_key(plugin_key, "{} cannot be loaded: {}; give its path", file, ::dlerror());
  }
  const void* const object = ::dlsym(library, symbol);
  if (object == nullptr) {
    refuse_key(plugin_key, "{} is no plug-in: it defines no {} (rondo/sync/scheme_plugin.hpp)",
               file, symbol);
  }
  const auto& plugin = *static_cast<const sync::SchemePlugin*>(object);
  if (plugin.version != sync::scheme_plugin_version) {
    refuse_key(plugin_key,
               "{} was compiled for plug-ins of version {}, and this is version {}; compile it "
               "with this release's headers",
               file, plugin.version, sync::scheme_plugin_version);
  }
  if (plugin.make == nullptr)
    refuse_key(plugin_key, "{} has no function that makes a scheme", file);
  return plugin;
}

void expect_known(const sync::SchemeSettings& settings, const std::string& file) {
  const std::vector<std::string> unknown = settings.never_asked_for();
  if (unknown.empty()) return;
  std::string known;
  for (const std::string& name : settings.asked_for()) known += (known.empty() ? "" : ", ") + name;
  refuse_key("update.plugin_settings", "{} does not know {}; it knows {}", file, unknown.front(),
             known.empty() ? "no settings" : known);
}

}  // namespace

MakeScheme load_scheme_plugin(const Experiment::Update& update) {
  const auto make = load(update.plugin).make;
  std::map<std::string, std::string> values(update.plugin_settings.begin(),
                                            update.plugin_settings.end());
  return [make, file = update.plugin, settings = sync::SchemeSettings(std::move(values))](
             const sync::Replica& replica, const std::shared_ptr<sync::Optimizer>& optimizer) {
    try {
      auto scheme = make(replica, optimizer, settings);
      expect_known(settings, file);
      return scheme;
    } catch (const ConfigError&) {
      throw;
    } catch (const transport::Error&) {  // a lost peer is in nobody's configuration
      throw;
    } catch (const std::bad_alloc&) {
      throw;
    } catch (const std::exception& error) {
      refuse_key(plugin_key, "{} has made no scheme: {}", file, error.what());
    }
  };
}

}  // namespace rondo::train
