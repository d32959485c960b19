// Memory of the caller becomes memory of the arena without moving: its pages are copied into a
// range of the arena, which is then mapped over them. Addresses and contents stay. Until it is
// released the memory has two addresses, the caller's and the one in the arena. Operations are
// posted with the latter (see CommunicatorCore::post()), so that whatever works with arenas, the
// links' registrations among it, works with adopted memory.

#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <iterator>
#include <limits>
#include <stdexcept>
#include <string>
#include <system_error>
#include <utility>

#include <rondo/transport/error.hpp>
#include <rondo/transport/world.hpp>

#include "memory/arena.hpp"
#include "memory/memory.hpp"

namespace rondo::transport {
namespace {

using Pages = std::span<std::byte>;

std::uintptr_t number_of(const void* address) noexcept {
  return reinterpret_cast<std::uintptr_t>(address);
}

std::uintptr_t end_of(Pages pages) noexcept { return number_of(pages.data()) + pages.size(); }

[[noreturn]] void refuse(const std::string& why) {
  throw std::invalid_argument("rondo::transport: adopt: " + why);
}

// The pages that hold `memory`, whole. The last page of all addresses is none of them, so that
// their end is an address, too.
Pages pages_of(std::span<std::byte> memory) {
  const auto page = static_cast<std::uintptr_t>(::sysconf(_SC_PAGESIZE));
  const std::uintptr_t end = std::numeric_limits<std::uintptr_t>::max() - page;
  const std::uintptr_t address = number_of(memory.data());
  if (address > end || memory.size() > end - address) {
    refuse("the memory reaches beyond the last address");
  }
  const std::uintptr_t before = address % page;
  const std::size_t bytes = (before + memory.size() + page - 1) / page * page;
  return {memory.data() - before, bytes};
}

// One line of /proc/self/maps.
struct Mapping {
  std::uintptr_t begin = 0;
  std::uintptr_t end = 0;
  std::string access = {};  // "rw-p"
  std::string name = {};    // a path, "[heap]", or nothing
};

Mapping parse_mapping(const std::string& line) {
  Mapping mapping;
  char access[5] = {};
  unsigned long begin = 0;
  unsigned long end = 0;
  int name = 0;
  std::sscanf(line.c_str(), "%lx-%lx %4s %*s %*s %*s %n", &begin, &end, access, &name);
  mapping = {.begin = begin, .end = end, .access = access, .name = {}};
  if (name > 0) mapping.name = line.substr(static_cast<std::size_t>(name));
  return mapping;
}

// Does the stack of the calling thread reach into the pages? Its frames change between the copy and
// the mapping.
bool reach_into_own_stack(Pages pages) noexcept {
  ::pthread_attr_t attributes;
  if (::pthread_getattr_np(::pthread_self(), &attributes) != 0) return false;
  void* begin = nullptr;
  std::size_t bytes = 0;
  const bool known = ::pthread_attr_getstack(&attributes, &begin, &bytes) == 0;
  ::pthread_attr_destroy(&attributes);
  return known && number_of(pages.data()) < number_of(begin) + bytes &&
         number_of(begin) < end_of(pages);
}

// A stack grows by page faults below it, and what other processes share must stay shared.
void check_mapping(const Mapping& mapping) {
  if (mapping.name.find("memfd:rondo-arena") != std::string::npos) {
    refuse("a page of this memory lies in an arena, or is adopted already");
  }
  if (mapping.access != "rw-p") {
    refuse("the memory is mapped as " + mapping.access + " (" + mapping.name +
           "); only private memory that can be read and written can be adopted");
  }
  if (mapping.name.starts_with("[stack")) refuse("the memory is on the stack");
}

// Are all pages ordinary memory of this process? The kernel alone knows.
void check_adoptable(Pages pages) {
  if (reach_into_own_stack(pages)) refuse("the memory is on the stack of this thread");
  std::ifstream maps("/proc/self/maps");
  std::uintptr_t next = number_of(pages.data());
  for (std::string line; next < end_of(pages) && std::getline(maps, line);) {
    const Mapping mapping = parse_mapping(line);
    if (mapping.end <= next) continue;
    if (mapping.begin > next) break;
    check_mapping(mapping);
    next = mapping.end;
  }
  if (next < end_of(pages)) refuse("not all of the memory is mapped, as /proc/self/maps says");
}

// Whole pages hold what lies around the buffer, too, and other threads may use that: sanitizers
// would complain, so they must not see this.
#if defined(__has_feature)
#define RONDO_SANITIZED (__has_feature(address_sanitizer) || __has_feature(thread_sanitizer))
#elif defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define RONDO_SANITIZED 1
#else
#define RONDO_SANITIZED 0
#endif
#if RONDO_SANITIZED
__attribute__((no_sanitize("address"), no_sanitize("thread"))) void copy_pages(void* into,
                                                                               Pages pages) {
  // Volatile: else the compiler makes a call of memcpy() of the loop, and that is watched.
  auto* const to = static_cast<volatile std::uint64_t*>(into);
  const auto* const from = reinterpret_cast<const volatile std::uint64_t*>(pages.data());
  for (std::size_t i = 0; i < pages.size() / sizeof(std::uint64_t); ++i) to[i] = from[i];
}
#else
void copy_pages(void* into, Pages pages) { std::memcpy(into, pages.data(), pages.size()); }
#endif

}  // namespace

// Ordinary memory again, with the same contents. One call replaces the pages, so that no moment
// is without them. False if the kernel has no memory for it; then nothing has changed.
bool ArenaCore::make_private(Pages pages) noexcept {
  void* const fresh =
      ::mmap(nullptr, pages.size(), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (fresh == MAP_FAILED) return false;
  copy_pages(fresh, pages);
  if (::mremap(fresh, pages.size(), pages.size(), MREMAP_MAYMOVE | MREMAP_FIXED, pages.data()) !=
      MAP_FAILED) {
    return true;
  }
  ::munmap(fresh, pages.size());
  return false;
}

// A store by another thread between the copy and the mapping is lost; the caller rules that out.
std::span<std::byte> ArenaCore::adopt(std::span<std::byte> memory) {
  const Pages pages = pages_of(memory);
  check_adoptable(pages);
  const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  auto* const copy = static_cast<std::byte*>(allocate(pages.size(), page));
  const auto offset = static_cast<std::size_t>(copy - memory_->arena().base());
  const auto before = static_cast<std::size_t>(memory.data() - pages.data());
  const auto adopted =
      adopted_.emplace(number_of(pages.data()), Adopted{before, memory.size(), offset});
  copy_pages(copy, pages);
  if (::mmap(pages.data(), pages.size(), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED,
             memory_->arena().descriptor(), static_cast<off_t>(offset)) == MAP_FAILED) {
    const int number = errno;
    adopted_.erase(adopted.first);
    deallocate(copy);
    throw Error(Errc::out_of_memory,
                "adopt: cannot map " + std::to_string(pages.size()) +
                    " bytes of the arena: " + std::generic_category().message(number));
  }
  return pages;
}

// Where the pages could not be made private the range stays in use: the caller still has it.
void ArenaCore::forget(std::span<std::byte> pages, bool made_private) noexcept {
  const auto adopted = adopted_.find(number_of(pages.data()));
  if (adopted == adopted_.end()) return;
  if (made_private) deallocate(memory_->arena().base() + adopted->second.offset);
  adopted_.erase(adopted);
}

const std::byte* ArenaCore::look_up_adopted(const std::byte* data,
                                            std::size_t bytes) const noexcept {
  const std::uintptr_t address = number_of(data);
  const auto after = adopted_.upper_bound(address);
  if (after == adopted_.begin()) return data;
  const auto& [begin, adopted] = *std::prev(after);
  const std::size_t on_pages = address - begin;
  if (on_pages < adopted.before) return data;
  const std::size_t within = on_pages - adopted.before;
  if (within > adopted.bytes || bytes > adopted.bytes - within) return data;
  return memory_->arena().base() + adopted.offset + on_pages;
}

}  // namespace rondo::transport
