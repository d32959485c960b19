// libfabric itself: loaded here and not linked, so that a machine without it gets an error that
// says what to install; its settings; and the texts of errors.

#include "links/ofi/library.hpp"

#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdlib>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "links/host_environment.hpp"
#include "links/link.hpp"

namespace rondo::transport::ofi {
namespace {

constexpr const char* file_name = "libfabric.so.1";

// libfabric reads these when it is loaded or first asked; what the user has set stays.
//
// - A library under the psm provider would take SIGSEGV, SIGINT and others from the host program.
// - A message that is too long for its receive makes ofi_rxm close the connection, and lose what
//   is under way, in two of its ways to receive: straight into the receive's memory (dyn_rbuf), and
//   in several packets (SAR). Without them messages go through its buffers up to 16 KiB, and are
//   fetched by the receiver above.
// - ofi_rxm closes the connection to a peer that is removed: the only way to cancel a send.
constexpr const char* close_removed = "FI_AV_REMOVE_CLEANUP";
constexpr std::array<std::pair<const char*, const char*>, 4> settings = {
    {{"IPATH_NO_BACKTRACE", "1"},
     {"FI_OFI_RXM_ENABLE_DYN_RBUF", "0"},
     {"FI_OFI_RXM_SAR_LIMIT", "16384"},
     {close_removed, "1"}}};

// Was libfabric loaded by somebody else before our settings were made? It may have read its
// environment then.
bool was_loaded_before = false;

bool is_loaded() {
  void* handle = ::dlopen(file_name, RTLD_NOW | RTLD_NOLOAD);
  if (handle != nullptr) ::dlclose(handle);
  return handle != nullptr;
}

template <typename Function>
void resolve(void* handle, const char* name, Function& function) {
  function = reinterpret_cast<Function>(::dlsym(handle, name));
  if (function == nullptr) {
    throw OpenError(std::string(file_name) + " has no " + name + "; update libfabric");
  }
}

Library load() {
  was_loaded_before = is_loaded() && std::getenv(close_removed) == nullptr;
  add_to_environment(settings);
  void* handle = ::dlopen(file_name, RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    throw OpenError("libfabric cannot be loaded (" + std::string(::dlerror()) +
                    "); install it, or choose another fabric");
  }
  Library found{};
  resolve(handle, "fi_getinfo", found.getinfo);
  resolve(handle, "fi_freeinfo", found.freeinfo);
  resolve(handle, "fi_dupinfo", found.dupinfo);
  resolve(handle, "fi_fabric", found.fabric);
  resolve(handle, "fi_version", found.version);
  resolve(handle, "fi_strerror", found.strerror);
  resolve(handle, "fi_getparams", found.getparams);
  resolve(handle, "fi_freeparams", found.freeparams);
  return found;
}

bool is_true(std::string_view value) {
  return value == "1" || value == "yes" || value == "true" || value == "on";
}

bool find_close_removed() {
  fi_param* parameters = nullptr;
  int count = 0;
  const Library& loaded = library();  // before the question whether it was there already
  if (was_loaded_before || loaded.getparams(&parameters, &count) != 0) return false;
  const std::span<const fi_param> all(parameters, static_cast<std::size_t>(count));
  const bool found = std::ranges::any_of(all, [](const fi_param& parameter) {
    return parameter.name == std::string_view(close_removed) && parameter.value != nullptr &&
           is_true(parameter.value);
  });
  loaded.freeparams(parameters);
  return found;
}

}  // namespace

const Library& library() {
  static const Library loaded = load();
  return loaded;
}

bool closes_removed_connections() {
  static const bool closes = find_close_removed();
  return closes;
}

void expect_ranks(std::int32_t size) {
  static std::once_flag once;
  std::call_once(once, [size] {
    const std::string text = std::to_string(size);
    const std::pair<const char*, const char*> setting("FI_UNIVERSE_SIZE", text.c_str());
    add_to_environment(std::span(&setting, 1));
  });
}

const char* error_text(std::int32_t error) {
  switch (error) {
    case error_unknown_peer:
      return "no address is known of this peer";
    case error_message_too_long:
      return "the message is longer than the libfabric provider can send";
    case error_bad_address:
      return "the peer's address is not one of a libfabric link";
    case error_other_provider:
      return "the peer chose another libfabric provider; choose one for all ranks";
    case error_peer_lost:
      return "the connection to the peer is lost";
    case error_link_lost:
      return "the libfabric endpoint is closed after an earlier error";
    case error_peer_closed:
      return "the connection to the peer was closed to cancel a message that it did not fetch";
    case Transfer::truncated:
      return "the message is longer than its receive";
    default:
      return library().strerror(error);
  }
}

}  // namespace rondo::transport::ofi
