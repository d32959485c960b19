#include "support/allocations.hpp"

#include <cstdlib>
#include <new>

#include "support/sanitized.hpp"

namespace {

thread_local std::size_t count = 0;
thread_local std::size_t bytes_asked_for = 0;
[[maybe_unused]] thread_local bool fails = false;

}  // namespace

std::size_t rondo::test::allocations_of_this_thread() noexcept { return count; }
std::size_t rondo::test::bytes_allocated_by_this_thread() noexcept { return bytes_asked_for; }
rondo::test::NoMemory::NoMemory() noexcept { fails = true; }
rondo::test::NoMemory::~NoMemory() { fails = false; }

#ifdef RONDO_SANITIZED

// The sanitizers replace operator new themselves, and offer a hook instead.
extern "C" int __sanitizer_install_malloc_and_free_hooks(void (*malloc_hook)(const volatile void*,
                                                                             std::size_t),
                                                         void (*free_hook)(const volatile void*));

namespace {

[[maybe_unused]] const int installed = __sanitizer_install_malloc_and_free_hooks(
    [](const volatile void*, std::size_t bytes) {
      count += 1;
      bytes_asked_for += bytes;
    },
    [](const volatile void*) {});

}  // namespace

#else

namespace {

void* allocate(std::size_t bytes, std::size_t alignment) {
  count += 1;
  bytes_asked_for += bytes;
  if (fails) throw std::bad_alloc();
  const std::size_t rounded = (bytes + alignment - 1) / alignment * alignment;
  void* memory = std::aligned_alloc(alignment, rounded == 0 ? alignment : rounded);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

}  // namespace

void* operator new(std::size_t bytes) { return allocate(bytes, alignof(std::max_align_t)); }
void* operator new[](std::size_t bytes) { return allocate(bytes, alignof(std::max_align_t)); }
void* operator new(std::size_t bytes, std::align_val_t alignment) {
  return allocate(bytes, static_cast<std::size_t>(alignment));
}
void* operator new[](std::size_t bytes, std::align_val_t alignment) {
  return allocate(bytes, static_cast<std::size_t>(alignment));
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete[](void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::size_t, std::align_val_t) noexcept { std::free(memory); }

#endif
