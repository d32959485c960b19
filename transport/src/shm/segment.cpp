#include "shm/segment.hpp"

#include <fcntl.h>
#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <string>
#include <system_error>
#include <utility>

#include <rondo/transport/error.hpp>

namespace rondo::transport::shm {
namespace {

[[noreturn]] void fail(const std::string& what, int number) {
  throw Error(Errc::out_of_memory,
              "shared memory: " + what + ": " + std::generic_category().message(number));
}

}  // namespace

Segment Segment::create(const char* name, std::size_t reserved_bytes) {
  Descriptor memory(::memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!memory.valid()) fail("cannot create a memfd", errno);
  if (::fcntl(memory.get(), F_ADD_SEALS, F_SEAL_SHRINK) != 0) fail("cannot seal a memfd", errno);
  return {std::move(memory), reserved_bytes};
}

Segment Segment::map(Descriptor memory, std::size_t reserved_bytes) {
  return {std::move(memory), reserved_bytes};
}

Segment::Segment(Descriptor memory, std::size_t reserved_bytes)
    : memory_(std::move(memory)), reserved_(reserved_bytes) {
  void* address = ::mmap(nullptr, reserved_, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE,
                         memory_.get(), 0);
  if (address == MAP_FAILED) {
    fail("cannot reserve " + std::to_string(reserved_ >> 20U) + " MiB of addresses", errno);
  }
  base_ = static_cast<std::byte*>(address);
  // A core dump of a trainer would otherwise hold every peer's arena.
  ::madvise(base_, reserved_, MADV_DONTDUMP);
}

Segment::Segment(Segment&& other) noexcept { *this = std::move(other); }

Segment& Segment::operator=(Segment&& other) noexcept {
  std::swap(memory_, other.memory_);
  std::swap(base_, other.base_);
  std::swap(size_, other.size_);
  std::swap(reserved_, other.reserved_);
  return *this;
}

Segment::~Segment() {
  if (base_ != nullptr) ::munmap(base_, reserved_);
}

void Segment::grow(std::size_t bytes) {
  if (bytes <= size_) return;
  if (bytes > reserved_) {
    fail(std::to_string(bytes >> 20U) + " MiB are wanted, " + std::to_string(reserved_ >> 20U) +
             " MiB of addresses are reserved",
         ENOMEM);
  }
  // Allocated now rather than at the first touch: a lack of memory is an error here, not SIGBUS
  // in the middle of a reduction. In pieces: a signal undoes all that a call has allocated so far,
  // and under a profiler's signals one long call would begin anew for ever.
  constexpr std::size_t piece = std::size_t{2} << 20U;
  for (std::size_t begin = size_; begin < bytes;) {
    const std::size_t length = std::min(piece, bytes - begin);
    if (::fallocate(memory_.get(), 0, static_cast<off_t>(begin), static_cast<off_t>(length)) == 0) {
      begin += length;
    } else if (errno != EINTR) {
      fail("cannot grow to " + std::to_string(bytes >> 20U) + " MiB", errno);
    }
  }
  size_ = bytes;
}

}  // namespace rondo::transport::shm
