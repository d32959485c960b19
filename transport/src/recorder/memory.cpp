#include "recorder/memory.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <new>
#include <string>
#include <string_view>
#include <utility>

namespace rondo::transport::recorder {
namespace {

constexpr const char* memory_name = "rondo-recorder";
// Addresses for about 4,000 communicators.
constexpr std::size_t reserved_bytes = std::size_t{256} << 20U;

bool is_recorder(int descriptor) {
  std::array<char, 64> target{};
  const std::string path = "/proc/self/fd/" + std::to_string(descriptor);
  if (::readlink(path.c_str(), target.data(), target.size() - 1) < 0) return false;
  return std::string_view(target.data()).starts_with(std::string("/memfd:") + memory_name);
}

}  // namespace

Memory Memory::create() { return Memory(shm::Segment::create(memory_name, reserved_bytes)); }

Memory Memory::map(shm::Descriptor descriptor) {
  return Memory(shm::Segment::map(std::move(descriptor), reserved_bytes));
}

std::optional<Memory> Memory::inherit(int descriptor) {
  if (!is_recorder(descriptor)) return std::nullopt;
  // It stays open for a later World, but is nothing for the programs that this one starts.
  ::fcntl(descriptor, F_SETFD, FD_CLOEXEC);
  shm::Descriptor own(::fcntl(descriptor, F_DUPFD_CLOEXEC, 0));
  if (!own.valid()) return std::nullopt;
  return map(std::move(own));
}

std::size_t Memory::size() const {
  struct stat status{};
  if (::fstat(descriptor(), &status) != 0) return 0;
  return std::min(static_cast<std::size_t>(status.st_size), segment_.reserved());
}

const Header* Memory::header() const {
  if (size() < sizeof(Header)) return nullptr;
  const auto* header = std::launder(reinterpret_cast<const Header*>(segment_.base()));
  // Acquire: pairs with the release of whoever begins to record.
  const bool begun = header->magic.load(std::memory_order_acquire) == Header::expected_magic;
  return begun ? header : nullptr;
}

std::vector<const Log*> Memory::logs() const {
  std::vector<const Log*> logs;
  const Header* begun = header();
  if (begun == nullptr) return logs;
  // Acquire: the logs were made before they were counted.
  const std::size_t counted = begun->logs.load(std::memory_order_acquire);
  const std::size_t bytes = size();
  for (std::size_t place = 0; place < counted; ++place) {
    if (offset_of_log(place + 1) > bytes) break;
    const auto* log =
        std::launder(reinterpret_cast<const Log*>(segment_.base() + offset_of_log(place)));
    if (log->state.load(std::memory_order_acquire) != LogState::unused) logs.push_back(log);
  }
  return logs;
}

}  // namespace rondo::transport::recorder
