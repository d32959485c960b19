#include "recorder/dump.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <string>
#include <system_error>

#include "recorder/json.hpp"
#include "shm/memory.hpp"

namespace rondo::transport::recorder {
namespace {

[[noreturn]] void fail(const std::filesystem::path& path) {
  throw std::system_error(errno, std::generic_category(),
                          "cannot write the flight record " + path.string());
}

void write_synced(const std::filesystem::path& path, std::string_view text) {
  constexpr mode_t mode = 0644;
  const shm::Descriptor file(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode));
  if (!file.valid()) fail(path);
  while (!text.empty()) {
    const ssize_t written = ::write(file.get(), text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) fail(path);
    text.remove_prefix(static_cast<std::size_t>(written));
  }
  if (::fsync(file.get()) != 0) fail(path);
}

// Several survivors may dump for the same rank at once.
std::filesystem::path aside(const std::filesystem::path& path) {
  static std::atomic<unsigned> count{0};
  std::filesystem::path result = path;
  result += "." + std::to_string(::getpid()) + "-" + std::to_string(++count) + ".partial";
  return result;
}

}  // namespace

bool dump(const Memory& memory, std::string_view reason, const std::filesystem::path& path) {
  const std::string json = to_json(memory, reason);
  if (json.empty()) return false;
  if (path.has_parent_path()) std::filesystem::create_directories(path.parent_path());
  const std::filesystem::path partial = aside(path);
  try {
    write_synced(partial, json);
    if (::rename(partial.c_str(), path.c_str()) != 0) fail(path);
  } catch (...) {
    ::unlink(partial.c_str());
    throw;
  }
  return true;
}

std::filesystem::path dump_path(const std::filesystem::path& folder, int rank) {
  return folder / ("flight-rank" + std::to_string(rank) + ".json");
}

}  // namespace rondo::transport::recorder
