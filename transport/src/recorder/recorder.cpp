// The memory of the flight recorder, and the rank that writes into it.
//
// The memory is a memfd, which peers and launchers can hold open, so that it outlives the rank.
// What is in it is published in order: a count or a state is stored (release) after all that it
// speaks of.

#include "recorder/recorder.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include <algorithm>
#include <array>
#include <cstring>
#include <new>
#include <string>
#include <string_view>
#include <utility>

namespace rondo::transport::recorder {
namespace {

constexpr const char* memory_name = "rondo-recorder";
// Addresses for about 4,000 communicators.
constexpr std::size_t reserved_bytes = std::size_t{256} << 20U;

// Descriptors are numbers: what is open under one may be something else by now.
bool is_recorder(int descriptor) {
  std::array<char, 64> target{};
  const std::string path = "/proc/self/fd/" + std::to_string(descriptor);
  if (::readlink(path.c_str(), target.data(), target.size() - 1) < 0) return false;
  return std::string_view(target.data()).starts_with(std::string("/memfd:") + memory_name);
}

// Zero-terminated, cut where it is too long.
template <std::size_t Size>
void fill(std::array<char, Size>& field, std::string_view text) {
  const std::size_t length = std::min(text.size(), Size - 1);
  std::memcpy(field.data(), text.data(), length);
  field[length] = '\0';
}

}  // namespace

// The counter must run at one pace whatever the core's frequency: x86 tells it by cpuid, ARM
// guarantees it.
TickSource best_tick_source() noexcept {
#if defined(__x86_64__)
  constexpr unsigned power_management = 0x80000007;
  constexpr unsigned invariant_counter = 1U << 8U;
  unsigned a = 0;
  unsigned b = 0;
  unsigned c = 0;
  unsigned d = 0;
  const bool known = __get_cpuid(power_management, &a, &b, &c, &d) != 0;
  return known && (d & invariant_counter) != 0 ? TickSource::processor
                                               : TickSource::monotonic_clock;
#elif defined(__aarch64__)
  return TickSource::processor;
#else
  return TickSource::monotonic_clock;
#endif
}

Moment Moment::now() noexcept {
  Moment moment;
  moment.unix_ns = nanoseconds_of(CLOCK_REALTIME);
  moment.monotonic_ns = nanoseconds_of(CLOCK_MONOTONIC);
  moment.ticks = recorder::ticks();
  return moment;
}

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

const RecordHeader* Memory::header() const {
  if (size() < sizeof(RecordHeader)) return nullptr;
  const auto* header = std::launder(reinterpret_cast<const RecordHeader*>(segment_.base()));
  // Acquire: pairs with the release of whoever begins to record.
  const bool begun = header->magic.load(std::memory_order_acquire) == RecordHeader::expected_magic;
  return begun ? header : nullptr;
}

// Logs in use. The memory may be somebody else's, so the count is checked against its size.
std::vector<const Log*> Memory::logs() const {
  std::vector<const Log*> logs;
  const RecordHeader* begun = header();
  if (begun == nullptr) return logs;
  // Acquire: the logs were made before they were counted.
  const std::size_t counted = begun->logs.load(std::memory_order_acquire);
  const std::size_t bytes = size();
  for (std::size_t index = 0; index < counted; ++index) {
    if (offset_of_log(index + 1) > bytes) break;
    const auto* log =
        std::launder(reinterpret_cast<const Log*>(segment_.base() + offset_of_log(index)));
    if (log->state.load(std::memory_order_acquire) != LogState::unused) logs.push_back(log);
  }
  return logs;
}

Recorder::Recorder(std::shared_ptr<Memory> memory, int rank, int size, std::string_view host)
    : memory_(std::move(memory)) {
  shm::Segment& segment = memory_->segment();
  segment.grow(sizeof(RecordHeader));
  auto* header = ::new (segment.base()) RecordHeader{};
  header->source = tick_source;
  header->rank = rank;
  header->size = size;
  header->pid = ::getpid();
  header->began = Moment::now();
  fill(header->version, RONDO_VERSION);
  fill(header->host, host);
  // Release: whoever finds the magic sees the rest.
  header->magic.store(RecordHeader::expected_magic, std::memory_order_release);
}

RecordHeader& Recorder::header() const noexcept {
  return *std::launder(reinterpret_cast<RecordHeader*>(memory_->segment().base()));
}

// Null when there is no memory: then the communicator is not recorded.
Log* Recorder::make_log() {
  const std::uint32_t index = header().logs.load(std::memory_order_relaxed);
  shm::Segment& segment = memory_->segment();
  try {
    segment.grow(offset_of_log(index + 1));
    closed_.reserve(index + 1);  // so that closing never allocates
  } catch (const std::exception&) {
    return nullptr;
  }
  auto* log = ::new (segment.base() + offset_of_log(index)) Log{};
  // Release: whoever counts it sees that it is empty.
  header().logs.store(index + 1, std::memory_order_release);
  return log;
}

// The log of the communicator that was destroyed longest ago, emptied.
Log* Recorder::take_closed() {
  if (closed_.empty()) return nullptr;
  Log* log = closed_.front();
  closed_.erase(closed_.begin());
  log->state.store(LogState::unused, std::memory_order_release);
  for (Entry& entry : log->ring) entry.index.store(0, std::memory_order_relaxed);
  log->posted.store(0, std::memory_order_relaxed);
  return log;
}

Log* Recorder::open_log(std::uint32_t context, int rank, std::span<const int> members) {
  Log* log = take_closed();
  if (log == nullptr) log = make_log();
  if (log == nullptr) return nullptr;
  log->context.store(context, std::memory_order_relaxed);
  log->rank.store(rank, std::memory_order_relaxed);
  log->size.store(static_cast<std::int32_t>(members.size()), std::memory_order_relaxed);
  for (std::size_t i = 0; i < std::min(members.size(), named_members); ++i) {
    log->members[i].store(members[i], std::memory_order_relaxed);
  }
  // Release: whoever sees it open sees whose it is.
  log->state.store(LogState::open, std::memory_order_release);
  return log;
}

void Recorder::close_log(Log& log) noexcept {
  log.state.store(LogState::closed, std::memory_order_release);
  closed_.push_back(&log);  // never allocates: make_log() reserved it
}

void Recorder::note_failure(Errc code, std::string_view text) noexcept {
  if (failed_.exchange(true)) return;
  fill(header().failure_text, text);
  // Release: the text comes before the code.
  header().failure.store(static_cast<std::uint32_t>(code), std::memory_order_release);
}

}  // namespace rondo::transport::recorder
