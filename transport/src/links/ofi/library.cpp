#include "links/ofi/library.hpp"

#include <dlfcn.h>

#include <cstdlib>
#include <mutex>
#include <string>

#include "links/ofi/errors.hpp"

namespace rondo::transport::ofi {
namespace {

constexpr const char* file_name = "libfabric.so.1";

template <typename Function>
void resolve(void* handle, const char* name, Function& function) {
  function = reinterpret_cast<Function>(::dlsym(handle, name));
  if (function == nullptr) {
    throw Failure(FI_ENOSYS, std::string(file_name) + " has no " + name + "; update libfabric");
  }
}

Library load() {
  // A library under the psm provider would take over SIGSEGV, SIGINT and others of the host
  // program.
  ::setenv("IPATH_NO_BACKTRACE", "1", /*replace=*/0);
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
