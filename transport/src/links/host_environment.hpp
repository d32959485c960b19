#pragma once

#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace rondo::transport {

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
