#include <cstdlib>

#include "plan/plan_request.hpp"

namespace rondo::tools {
namespace {

std::filesystem::path folder() {
  if (const char* cache = std::getenv("XDG_CACHE_HOME"); cache != nullptr && *cache == '/') {
    return cache;
  }
  const char* home = std::getenv("HOME");
  return home != nullptr && *home == '/' ? std::filesystem::path(home) / ".cache"
                                         : std::filesystem::path();
}

}  // namespace

std::filesystem::path times_file() {
  const std::filesystem::path cache = folder();
  return cache.empty() ? cache : cache / "rondo" / "kernel-times.json";
}

}  // namespace rondo::tools
