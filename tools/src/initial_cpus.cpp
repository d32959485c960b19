// Undoes that OpenMP binds the first thread.
//
// With OMP_PROC_BIND, OMP_PLACES or GOMP_CPU_AFFINITY the constructor of libgomp binds the first
// thread to one place, usually one core, before main(). This process would then take that core for
// all that it may use, and its threads and the ranks that it starts would inherit it. The dynamic
// loader calls the functions in an executable's .preinit_array before the constructors of all
// libraries, so the mask is read there, exactly as the launcher or the user has set it. OpenMP's
// other threads stay in the places that the user wants.

#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <climits>
#include <cstddef>
#include <system_error>
#include <vector>

#include <rondo/transport/usable_cpus.hpp>

#include "machine.hpp"

namespace rondo::tools {
namespace {

constexpr std::size_t word_bits = sizeof(unsigned long) * CHAR_BIT;

std::array<unsigned long, 65'536 / word_bits> initial_mask;

// No constructor has run yet, not even a sanitizer's: this calls the kernel alone.
__attribute__((no_sanitize("address", "thread", "undefined"))) void read_initial_mask() {
  syscall(SYS_sched_getaffinity, 0, sizeof initial_mask, &initial_mask);
}

[[gnu::section(".preinit_array"),
  gnu::used]] void (*read_before_constructors)() = read_initial_mask;

}  // namespace

void restore_initial_cpus() {
  std::vector<int> cpus;
  for (std::size_t cpu = 0; cpu < initial_mask.size() * word_bits; ++cpu) {
    if ((initial_mask[cpu / word_bits] >> (cpu % word_bits) & 1U) != 0) {
      cpus.push_back(static_cast<int>(cpu));
    }
  }
  if (cpus.empty() || cpus == transport::thread_cpus()) return;
  try {
    transport::bind_to(cpus);
  } catch (const std::system_error&) {
    // The cpuset has changed in the meantime: the mask that the kernel has made of it stays.
  }
}

}  // namespace rondo::tools
