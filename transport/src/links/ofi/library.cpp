#include "links/ofi/library.hpp"

#include <dlfcn.h>

#include <array>
#include <cstdlib>
#include <mutex>
#include <string>
#include <utility>

#include "links/ofi/errors.hpp"

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
constexpr std::array<std::pair<const char*, const char*>, 3> settings = {
    {{"IPATH_NO_BACKTRACE", "1"},
     {"FI_OFI_RXM_ENABLE_DYN_RBUF", "0"},
     {"FI_OFI_RXM_SAR_LIMIT", "16384"}}};

template <typename Function>
void resolve(void* handle, const char* name, Function& function) {
  function = reinterpret_cast<Function>(::dlsym(handle, name));
  if (function == nullptr) {
    throw Failure(FI_ENOSYS, std::string(file_name) + " has no " + name + "; update libfabric");
  }
}

Library load() {
  for (const auto& [variable, value] : settings) ::setenv(variable, value, /*replace=*/0);
  void* handle = ::dlopen(file_name, RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    throw Failure(FI_ENOSYS, "libfabric cannot be loaded (" + std::string(::dlerror()) +
                                 "); install it, or choose another fabric");
  }
  Library found{};
  resolve(handle, "fi_getinfo", found.getinfo);
  resolve(handle, "fi_freeinfo", found.freeinfo);
  resolve(handle, "fi_dupinfo", found.dupinfo);
  resolve(handle, "fi_fabric", found.fabric);
  resolve(handle, "fi_version", found.version);
  resolve(handle, "fi_strerror", found.strerror);
  return found;
}

}  // namespace

const Library& library() {
  static const Library loaded = load();
  return loaded;
}

void expect_ranks(std::int32_t size) {
  static std::once_flag once;
  std::call_once(
      once, [size] { ::setenv("FI_UNIVERSE_SIZE", std::to_string(size).c_str(), /*replace=*/0); });
}

}  // namespace rondo::transport::ofi
