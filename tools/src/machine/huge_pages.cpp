#include "machine/huge_pages.hpp"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <system_error>

namespace rondo::tools {
namespace {

namespace fs = std::filesystem;

const fs::path kernel = "/sys/kernel/mm";

std::uint64_t number_in(const fs::path& path) {
  std::uint64_t value = 0;
  std::ifstream(path) >> value;
  return value;
}

// From a folder's name, such as hugepages-2048kB.
std::uint64_t page_bytes_of(const std::string& name) {
  std::uint64_t kibibytes = 0;
  const std::size_t dash = name.find('-');
  if (dash == std::string::npos) return 0;
  std::from_chars(name.data() + dash + 1, name.data() + name.size(), kibibytes);
  return kibibytes * 1024;
}

}  // namespace

std::vector<HugePagePool> huge_page_pools() {
  std::vector<HugePagePool> pools;
  std::error_code none;
  for (const auto& folder : fs::directory_iterator(kernel / "hugepages", none)) {
    const fs::path& path = folder.path();
    pools.push_back({page_bytes_of(path.filename().string()), number_in(path / "nr_hugepages"),
                     number_in(path / "free_hugepages")});
  }
  std::ranges::sort(pools, {}, &HugePagePool::page_bytes);
  return pools;
}

std::string transparent_shared_pages() {
  std::ifstream file(kernel / "transparent_hugepage" / "shmem_enabled");
  std::string word;
  while (file >> word) {
    if (word.starts_with('[') && word.ends_with(']')) return word.substr(1, word.size() - 2);
  }
  return "unknown";
}

}  // namespace rondo::tools
