// Segments are memfds that are mapped once, over a range much larger than what is behind them. A
// segment grows by allocating more of the file: addresses stay, and peers that have mapped the
// range reach the new part at once. Each rank has two: control (header, control blocks, staging
// buffers) and arena (buffers of collectives).

#include "memory/memory.hpp"

#include <fcntl.h>
#include <linux/membarrier.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <new>
#include <string>
#include <system_error>
#include <utility>

#include <rondo/transport/error.hpp>

#include "base/cache_line.hpp"

namespace rondo::transport::shm {
namespace {

constexpr std::size_t gibibyte = std::size_t{1} << 30U;
constexpr std::size_t page_bytes = 4096;
// The arenas of a World may take so much of the 128 TiB that x86-64 and arm64 give a process with
// four-level page tables: a process may have many Worlds.
constexpr std::size_t addresses_of_world = std::size_t{2} << 40U;

[[noreturn]] void throw_out_of_memory(const std::string& what, int number) {
  throw Error(Errc::out_of_memory,
              "shared memory: " + what + ": " + std::generic_category().message(number));
}

std::size_t machine_bytes() {
  return static_cast<std::size_t>(::sysconf(_SC_PHYS_PAGES)) *
         static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
}

// Segments begin at different places of a range of 256 MiB, because ranks have their buffers at the
// same offsets of their segments. AMD's processors guess the way of the first-level cache in which
// a line lies by a hash of bits 12 to 27 of its address (Lipp, Hadzic, Schwarz, Perais, Maurice,
// Gruss, "Take A Way", AsiaCCS 2020). Two lines of the same hash evict each other: a loop over two
// buffers that are a multiple of 256 MiB apart took 8 times as long on Zen 4. Steps of 2 MiB, so
// that huge pages fit.
constexpr std::size_t place_bytes = std::size_t{2} << 20U;
constexpr std::size_t places = 128;

// ENOMEM may also mean this limit: the kernel says it of memory and of addresses alike.
std::string limit_of_addresses() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return {};
  return ", of which the limit (ulimit -v) allows " + std::to_string(limit.rlim_cur >> 20U) +
         " MiB in all";
}

std::byte* map_addresses(std::byte* at, std::size_t bytes, int protection, int flags, int memory) {
  void* const address = ::mmap(at, bytes, protection, flags | MAP_NORESERVE, memory, 0);
  if (address == MAP_FAILED) {
    const int error = errno;
    throw_out_of_memory("cannot reserve " + std::to_string(bytes >> 20U) + " MiB of addresses" +
                            limit_of_addresses(),
                        error);
  }
  return static_cast<std::byte*>(address);
}

// Whole pages of addresses for the next segment, at its place; nobody may touch them yet.
std::byte* reserve_addresses(std::size_t bytes) {
  static std::atomic<std::size_t> segments{0};
  const std::size_t place = segments.fetch_add(1, std::memory_order_relaxed) % places * place_bytes;
  constexpr std::size_t range = places * place_bytes;
  std::byte* const all =
      map_addresses(nullptr, bytes + range, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1);
  const std::size_t before = (place - reinterpret_cast<std::uintptr_t>(all)) % range;
  if (before > 0) ::munmap(all, before);
  ::munmap(all + before + bytes, range - before);
  return all + before;
}

bool membarrier(int command) noexcept { return ::syscall(SYS_membarrier, command, 0, 0) == 0; }

}  // namespace

// Sealed against shrinking before another process has it: a peer can trust the size that it sees.
Segment Segment::create(const char* name, std::size_t reserved_bytes) {
  Descriptor memory(::memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!memory.valid()) throw_out_of_memory("cannot create a memfd", errno);
  if (::fcntl(memory.get(), F_ADD_SEALS, F_SEAL_SHRINK) != 0) {
    throw_out_of_memory("cannot seal a memfd", errno);
  }
  return {std::move(memory), reserved_bytes};
}

Segment Segment::map(Descriptor memory, std::size_t reserved_bytes) {
  return {std::move(memory), reserved_bytes};
}

// Addresses cost nothing (MAP_NORESERVE), so as many are mapped at once as may ever be needed.
Segment::Segment(Descriptor memory, std::size_t reserved_bytes)
    : memory_(std::move(memory)), reserved_(round_up(reserved_bytes, page_bytes)) {
  std::byte* const addresses = reserve_addresses(reserved_);
  try {
    base_ = map_addresses(addresses, reserved_, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED,
                          memory_.get());
  } catch (...) {
    ::munmap(addresses, reserved_);
    throw;
  }
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
    throw_out_of_memory(std::to_string(bytes >> 20U) + " MiB are wanted, " +
                            std::to_string(reserved_ >> 20U) + " MiB of addresses are reserved",
                        ENOMEM);
  }
  if (!may_be_file_size(bytes)) {
    throw_out_of_memory("cannot grow to " + std::to_string(bytes >> 20U) +
                            " MiB beyond the limit of file sizes (ulimit -f)",
                        EFBIG);
  }
  // Allocated now rather than at the first touch: a lack of memory is an error here, not SIGBUS
  // in the middle of a reduction. A little at a time: a signal undoes all that a call has allocated
  // so far, and under a profiler's signals one long call would begin anew for ever.
  constexpr std::size_t allocated_at_once = std::size_t{2} << 20U;
  for (std::size_t begin = size_; begin < bytes;) {
    const std::size_t length = std::min(allocated_at_once, bytes - begin);
    if (::fallocate(memory_.get(), 0, static_cast<off_t>(begin), static_cast<off_t>(length)) == 0) {
      begin += length;
    } else if (errno != EINTR) {
      const int error = errno;
      give_back(size_, begin);
      throw_out_of_memory("cannot grow to " + std::to_string(bytes >> 20U) + " MiB", error);
    }
  }
  size_ = bytes;
}

// The file stays as long as it is, because it is sealed; only the memory behind its end goes.
void Segment::give_back(std::size_t begin, std::size_t end) const noexcept {
  if (begin == end) return;
  ::fallocate(memory_.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(begin),
              static_cast<off_t>(end - begin));
}

bool may_be_file_size(std::size_t bytes) noexcept {
  rlimit limit{};
  if (::getrlimit(RLIMIT_FSIZE, &limit) != 0 || bytes <= limit.rlim_cur) return true;
  if (bytes > limit.rlim_max) return false;
  limit.rlim_cur = limit.rlim_max;
  return ::setrlimit(RLIMIT_FSIZE, &limit) == 0;
}

std::uint64_t append(Segment& segment, std::size_t bytes) {
  const std::size_t offset = round_up(segment.size(), page_bytes);
  segment.grow(offset + bytes);
  return offset;
}

// Each rank maps two segments of every rank of its node.
Reserve Reserve::of(int ranks) { return of(ranks, machine_bytes()); }

Reserve Reserve::of(int ranks, std::size_t memory_bytes) {
  constexpr std::size_t fair_shares = 4;
  const std::size_t memory = memory_bytes / gibibyte + 1;
  const std::size_t most = std::max(addresses_of_world / gibibyte, fair_shares * memory);
  const std::size_t share = std::max<std::size_t>(most / static_cast<std::size_t>(ranks), 1);
  return {.control_bytes = gibibyte, .arena_bytes = std::min(memory, share) * gibibyte};
}

// The header and the control block of the World's communicator are made before a peer maps the
// segment; later blocks are appended.
std::shared_ptr<RankMemory> RankMemory::create(const Reserve& reserve, std::uint64_t nonce) {
  auto memory = std::make_shared<RankMemory>();
  memory->control_ = Segment::create("rondo-control", reserve.control_bytes);
  memory->arena_ = Segment::create("rondo-arena", reserve.arena_bytes);
  memory->control_.grow(world_block + sizeof(ControlBlock));
  auto* header = ::new (memory->control_.base()) RankHeader;
  header->nonce = nonce;
  header->light_fences = offer_light_fences();
  auto* block = ::new (memory->control_.base() + world_block) ControlBlock;
  // The first operation has the sequence slot_count: a fresh slot's 0 is none's.
  block->consumed.store(slot_count - 1, std::memory_order_relaxed);
  return memory;
}

// The nonce came with the handshake: a mapping that has another one is not the peer's.
std::shared_ptr<RankMemory> RankMemory::map(Descriptor control, Descriptor arena,
                                            const Reserve& reserve, std::uint64_t nonce) {
  auto memory = std::make_shared<RankMemory>();
  memory->control_ = Segment::map(std::move(control), reserve.control_bytes);
  memory->arena_ = Segment::map(std::move(arena), reserve.arena_bytes);
  memory->control_.close_descriptor();
  memory->arena_.close_descriptor();
  if (memory->header().nonce != nonce) {
    throw Error(Errc::bootstrap_failed, "a peer's shared memory is not its own");
  }
  return memory;
}

// The header in a mapping was made by a placement new, perhaps of another process.
RankHeader& RankMemory::header() const noexcept {
  return *std::launder(reinterpret_cast<RankHeader*>(control_.base()));
}

ControlBlock& RankMemory::block(std::uint64_t offset) const noexcept {
  return *std::launder(reinterpret_cast<ControlBlock*>(control_.base() + offset));
}

bool offer_light_fences() noexcept { return membarrier(MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED); }

void fence_everywhere() noexcept {
  std::atomic_thread_fence(std::memory_order_seq_cst);
  // It fails only where offering failed, too; then peers use full fences.
  static_cast<void>(membarrier(MEMBARRIER_CMD_GLOBAL_EXPEDITED));
}

}  // namespace rondo::transport::shm
