#pragma once

#include <cstdlib>
#include <filesystem>

namespace rondo::test {

/// The project's own sources, for tests that read examples and documents: Meson says where they
/// are.
inline std::filesystem::path sources() {
  const char* folder = std::getenv("RONDO_SOURCES");
  return folder == nullptr ? std::filesystem::path("RONDO_SOURCES-is-not-set") : folder;
}

}  // namespace rondo::test
