// How links to other nodes are found, loaded and opened.
//
// Each is a library of its own, because it needs a fabric's library that is not on every machine:
// librondo-transport loads it when a World needs it, and works without it. A plug-in exports one
// object (LinkPlugin) whose functions make links. All errors say what to do about them.

#include "links/plugin.hpp"

#include <dlfcn.h>
#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <mutex>
#include <sstream>
#include <string_view>
#include <utility>
#include <vector>

#include <rondo/transport/error.hpp>
#include <rondo/transport/links.hpp>

#include "links/tcp/link.hpp"

namespace rondo::transport {
namespace {

constexpr const char* symbol = "rondo_link_plugin";
constexpr const char* known_links[] = {"ofi", "tcp", "ucx"};

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

// Where plug-ins are looked for, first to last.
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

[[noreturn]] void refuse_plugin(const std::string& text) {
  throw Error(Errc::link_unavailable, text);
}

// The first folder that has `file`; empty when none has.
std::string find_file(const std::string& file) {
  for (const auto& folder : folders()) {
    const auto candidate = folder / file;
    if (::access(candidate.c_str(), F_OK) == 0) return candidate.string();
  }
  return {};
}

[[noreturn]] void fail_absent(const std::string& file, const std::string& what) {
  std::string looked;
  for (const auto& folder : folders()) looked += (looked.empty() ? "" : ", ") + folder.string();
  refuse_plugin("the " + what + " is not installed: no " + file + " in " + looked +
                "; install it, or name its folder in RONDO_PLUGIN_PATH");
}

// The signal that ends a program which loads `library`, or 0. Nothing in this process could prevent
// that: constructors of what it loads may call abort(). So another program loads it first, which
// shares nothing with the threads of this one. Where none can be started, nothing is known.
int signal_of_trial(const std::string& library) {
  std::string preload = "LD_PRELOAD=" + library;
  std::string program = "true";
  std::vector<char*> environment = {preload.data()};
  for (char** entry = environ; *entry != nullptr; ++entry) {
    if (!std::string_view(*entry).starts_with("LD_PRELOAD=")) environment.push_back(*entry);
  }
  environment.push_back(nullptr);
  const std::array<char*, 2> arguments = {program.data(), nullptr};
  posix_spawn_file_actions_t quiet{};
  ::posix_spawn_file_actions_init(&quiet);
  ::posix_spawn_file_actions_addopen(&quiet, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
  pid_t child = 0;
  const int error = ::posix_spawnp(&child, program.c_str(), &quiet, nullptr, arguments.data(),
                                   environment.data());
  ::posix_spawn_file_actions_destroy(&quiet);
  int status = 0;
  while (error == 0 && ::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  return WIFSIGNALED(status) ? WTERMSIG(status) : 0;
}

void expect_to_survive(const std::string& library, const std::string& what) {
  void* const loaded = ::dlopen(library.c_str(), RTLD_NOW | RTLD_NOLOAD);
  if (loaded != nullptr) {
    ::dlclose(loaded);
    return;
  }
  const int signal = signal_of_trial(library);
  if (signal == 0) return;
  refuse_plugin("the " + what + " in " + library + " is not used, because signal " +
                std::to_string(signal) + " ends a program that loads it; mend what this says: " +
                "LD_PRELOAD=" + library + " /bin/true");
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

// Loads the plug-in for good. May be called by several threads. "tcp" is a part of this library.
const LinkPlugin& load_plugin(const std::string& name) {
  if (name == "tcp") return tcp::plugin;
  static std::mutex one_at_a_time;  // the environment, and the constructors of what is loaded
  const std::scoped_lock lock(one_at_a_time);
  const std::string what = "link plug-in '" + name + "'";
  if (find_plugin(name).empty()) fail_absent(file_of(name), what);
  prepare_environment(name);
  return *static_cast<const LinkPlugin*>(load_plugin_object(file_of(name), what, symbol));
}

std::string description_of(const LinkPlugin& plugin) {
  try {
    return plugin.describe();
  } catch (const std::exception& error) {
    return std::string("version unknown: ") + error.what();
  }
}

// The facts that `rondo info` prints. A plug-in that is missing or broken is a fact, too.
LinkFacts facts_of(const std::string& name) {
  LinkFacts plugin{.name = name, .path = find_plugin(name)};
  try {
    std::istringstream lines(description_of(load_plugin(name)));
    for (std::string line; std::getline(lines, line);) plugin.facts.push_back(line);
  } catch (const Error& error) {
    plugin.problem = error.what();
  }
  return plugin;
}

}  // namespace

std::string find_plugin(const std::string& name) { return find_file(file_of(name)); }

// Nothing of the plug-in but its release is used before the two are known to be of one.
const void* load_plugin_object(const std::string& file, const std::string& what,
                               const char* symbol_of_object) {
  const std::string path = find_file(file);
  if (path.empty()) fail_absent(file, what);
  expect_to_survive(path, what);
  void* library = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  if (library == nullptr) {
    refuse_plugin("the " + what + " in " + path + " cannot be loaded: " + ::dlerror() +
                  "; install what it needs, or name another folder in RONDO_PLUGIN_PATH");
  }
  const void* object = ::dlsym(library, symbol_of_object);
  const std::string kind = what.substr(0, what.find(" '"));
  if (object == nullptr) {
    refuse_plugin(path + " is not a " + kind + " of this release: it has no symbol " +
                  symbol_of_object + "; install plug-in and librondo-transport of one release");
  }
  const std::string_view release = *static_cast<const char* const*>(object);
  if (release != std::string_view(RONDO_VERSION)) {
    refuse_plugin(path + " is of release " + std::string(release) +
                  ", but librondo-transport of release " RONDO_VERSION
                  "; install both of one release");
  }
  return object;
}

std::unique_ptr<Link> open_plugin(const std::string& name, const LinkOptions& options) {
  const LinkPlugin& plugin = load_plugin(name);
  try {
    return plugin.open(options);
  } catch (const std::exception& error) {
    refuse_plugin("the link '" + name + "' cannot be opened: " + error.what());
  }
}

std::string problem_of_plugin(const std::string& name) {
  try {
    static_cast<void>(load_plugin(name));
    return {};
  } catch (const Error& error) {
    return error.what();
  }
}

std::vector<LinkFacts> links() {
  std::vector<LinkFacts> all = {{.name = "shm", .facts = {"version " RONDO_VERSION}}};
  for (const char* name : known_links) all.push_back(facts_of(name));
  return all;
}

}  // namespace rondo::transport
