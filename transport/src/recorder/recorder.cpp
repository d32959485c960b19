// The memory of the flight recorder, and the rank that writes into it.
//
// The memory is a memfd, which peers and launchers can hold open, so that it outlives the rank. Its
// contents are published in order: a count or a state is stored (release) after all that it speaks
// of.
//
// A flight record becomes a file like this: its entries are copied while the rank may go on
// writing, put into JSON, and written so that no reader ever finds half a file.
//
// The JSON is written by hand. nlohmann::json would be a dependency of the library's for one
// function, would make an object of each of up to 1,024 entries of each communicator at a moment
// when memory may be short, and would take longer to compile than all else here.

#include "recorder/recorder.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <new>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

#include <sys/stat.h>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include <rondo/transport/error.hpp>

#include "memory/memory.hpp"
#include "recorder/names.hpp"

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

// Logs in use. The memory may be another rank's, so the count is checked against its size.
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

namespace {

// An entry, unless it is being written just now: its index is read before and after the rest.
std::optional<EntryCopy> copy(const Entry& entry) {
  constexpr auto relaxed = std::memory_order_relaxed;
  EntryCopy copy;
  // Acquire: what is read below is at least as new.
  copy.index = entry.index.load(std::memory_order_acquire);
  if (copy.index == 0) return std::nullopt;
  copy.number = entry.number.load(relaxed);
  copy.operation = entry.operation.load(relaxed);
  copy.type = entry.type.load(relaxed);
  copy.reduction = entry.reduction.load(relaxed);
  copy.stage = entry.stage.load(relaxed);
  copy.partner = entry.partner.load(relaxed);
  copy.count = entry.count.load(relaxed);
  copy.bytes = entry.bytes.load(relaxed);
  copy.posted = entry.posted.load(relaxed);
  copy.started = entry.started.load(relaxed);
  copy.ended = entry.ended.load(relaxed);
  // Had anything of a later operation been read, its index or 0 would be seen now: pairs with
  // the fence in record().
  std::atomic_thread_fence(std::memory_order_acquire);
  if (entry.index.load(relaxed) != copy.index) return std::nullopt;
  return copy;
}

// Members of a JSON object, one after the other.
class Object {
 public:
  explicit Object(std::string& text) : text_(text) { text_ += '{'; }
  Object(const Object&) = delete;
  Object& operator=(const Object&) = delete;
  ~Object() { text_ += '}'; }

  /// Puts the name; the value is the caller's to append.
  std::string& name(const char* name) {
    if (!first_) text_ += ", ";
    first_ = false;
    return (text_ += '"').append(name).append("\": ");
  }
  void text(const char* key, std::string_view value) { name(key) += quoted(value); }
  template <typename Number>
  void number(const char* key, Number value) {
    name(key) += std::to_string(value);
  }
  void time(const char* key, const TickScale& scale, std::uint64_t ticks) {
    if (ticks == 0) {
      name(key) += "null";
      return;
    }
    std::array<char, 40> digits{};  // JSON has decimal points, whatever the program's locale
    const auto end = std::to_chars(digits.data(), digits.data() + digits.size(),
                                   scale.microseconds(ticks), std::chars_format::fixed, 3);
    name(key).append(digits.data(), end.ptr);
  }

 private:
  std::string& text_;
  bool first_ = true;
};

const char* name_of(LogState state) { return state == LogState::open ? "open" : "closed"; }

bool is_collective(const EntryCopy& entry) { return entry.operation < first_point_to_point; }

// Tells what the operation was; the names of its numbers depend on that.
void append_names(Object& object, const EntryCopy& entry) {
  if (!is_collective(entry)) {
    const auto call = static_cast<PointToPointCall>(entry.operation - first_point_to_point);
    object.text("operation", transport::name_of(call));
    if (entry.partner >= 0) object.number("peer", entry.partner);
    object.number("tag", entry.number);
    return;
  }
  const auto collective = static_cast<shm::Collective>(entry.operation);
  object.text("operation", transport::name_of(collective));
  object.number("number", entry.number);
  if (reduces(collective)) {
    object.text("reduction", transport::name_of(static_cast<ReduceOp>(entry.reduction)));
  }
  if (entry.partner >= 0) object.number("root", entry.partner);
}

void append(std::string& json, const EntryCopy& entry, const TickScale& scale) {
  Object object(json);
  object.number("index", entry.index);
  append_names(object, entry);
  object.text("type", transport::name_of(static_cast<ElementType>(entry.type)));
  object.number("count", entry.count);
  object.number("bytes", entry.bytes);
  object.text("state", transport::name_of(static_cast<Stage>(entry.stage)));
  object.time("posted_us", scale, entry.posted);
  object.time("started_us", scale, entry.started);
  object.time("ended_us", scale, entry.ended);
}

// World ranks of the members, as many as the log names.
void append_members(std::string& json, const Log& log) {
  json += '[';
  const auto size = static_cast<std::size_t>(log.size.load(std::memory_order_relaxed));
  for (std::size_t i = 0; i < std::min(size, named_members); ++i) {
    if (i > 0) json += ", ";
    json += std::to_string(log.members[i].load(std::memory_order_relaxed));
  }
  json += ']';
}

void append(std::string& json, const Log& log, const TickScale& scale) {
  Object object(json);
  object.number("context", log.context.load(std::memory_order_relaxed));
  object.text("state", name_of(log.state.load(std::memory_order_relaxed)));
  object.number("rank", log.rank.load(std::memory_order_relaxed));
  object.number("size", log.size.load(std::memory_order_relaxed));
  append_members(object.name("members"), log);
  const std::vector<EntryCopy> entries = copy_entries(log);
  object.number("posted", log.posted.load(std::memory_order_relaxed));
  std::string& text = object.name("operations");
  text += '[';
  for (std::size_t i = 0; i < entries.size(); ++i) {
    text += i == 0 ? "\n    " : ",\n    ";
    append(text, entries[i], scale);
  }
  text += ']';
}

void append_failure(Object& object, const RecordHeader& header) {
  // Acquire: pairs with the release in note_failure().
  const std::uint32_t code = header.failure.load(std::memory_order_acquire);
  std::string& text = object.name("failure");
  if (code == 0) {
    text += "null";
    return;
  }
  Object failure(text);
  failure.text("kind", make_error_code(static_cast<Errc>(code)).message());
  failure.text("text", header.failure_text.data());
}

// Bytes of the UTF-8 character that `text` begins with; 0 when it is none.
std::size_t character(std::string_view text) {
  const auto first = static_cast<unsigned char>(text.front());
  std::size_t bytes = 0;
  if (first < 0x80) bytes = 1;
  if (first >= 0xC2 && first < 0xE0) bytes = 2;
  if (first >= 0xE0 && first < 0xF0) bytes = 3;
  if (first >= 0xF0 && first < 0xF5) bytes = 4;
  if (bytes > text.size()) return 0;
  for (std::size_t i = 1; i < bytes; ++i) {
    if ((static_cast<unsigned char>(text[i]) & 0xC0U) != 0x80U) return 0;
  }
  if (bytes < 3) return bytes;
  // Overlong forms, surrogates, and what lies beyond the last character.
  const auto second = static_cast<unsigned char>(text[1]);
  const bool wrong = (first == 0xE0 && second < 0xA0) || (first == 0xED && second >= 0xA0) ||
                     (first == 0xF0 && second < 0x90) || (first == 0xF4 && second >= 0x90);
  return wrong ? 0 : bytes;
}

// By errno.
[[noreturn]] void fail(const std::filesystem::path& path) {
  throw std::system_error(errno, std::generic_category(),
                          "cannot write the flight record " + path.string());
}

// A device or a pipe in that place would be replaced by a file: root has the permission.
void expect_no_special_file(const std::filesystem::path& path) {
  std::error_code error;
  const auto status = std::filesystem::status(path, error);
  if (!std::filesystem::exists(status) || std::filesystem::is_regular_file(status)) return;
  errno = std::filesystem::is_directory(status) ? EISDIR : EEXIST;
  fail(path);
}

// The file must not exist yet, and is on disk when this returns.
void write_synced(const std::filesystem::path& path, std::string_view text) {
  if (!shm::may_be_file_size(text.size())) {
    errno = EFBIG;
    fail(path);
  }
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

// A name beside the file for its unfinished state. Several survivors may dump for the same rank at
// once.
std::filesystem::path aside(const std::filesystem::path& path) {
  static std::atomic<unsigned> count{0};
  std::filesystem::path result = path;
  result += "." + std::to_string(::getpid()) + "-" + std::to_string(++count) + ".partial";
  return result;
}

}  // namespace

std::vector<EntryCopy> copy_entries(const Log& log) {
  std::vector<EntryCopy> copies;
  copies.reserve(log_entries);
  for (const Entry& entry : log.ring) {
    if (const auto found = copy(entry)) copies.push_back(*found);
  }
  std::ranges::sort(copies, {}, &EntryCopy::index);
  return copies;
}

// Without any tick between the two moments, a tick counts as a nanosecond.
TickScale::TickScale(const Moment& began, const Moment& now) noexcept
    : first_(began.ticks),
      nanoseconds_per_tick_(now.ticks > began.ticks
                                ? static_cast<double>(now.monotonic_ns - began.monotonic_ns) /
                                      static_cast<double>(now.ticks - began.ticks)
                                : 1.0) {}

double TickScale::microseconds(std::uint64_t ticks) const noexcept {
  // Signed: a core's counter may lag by a few ticks.
  const auto since = static_cast<std::int64_t>(ticks - first_);
  return static_cast<double>(since) * nanoseconds_per_tick_ / 1e3;
}

std::string quoted(std::string_view text) {
  std::string json = "\"";
  while (!text.empty()) {
    const std::size_t bytes = character(text);
    const char first = text.front();
    if (bytes == 0) {
      json += '?';
    } else if (first == '"' || first == '\\') {
      (json += '\\') += first;
    } else if (static_cast<unsigned char>(first) < 0x20) {
      std::array<char, 8> escape{};
      std::snprintf(escape.data(), escape.size(), "\\u%04x", static_cast<unsigned>(first));
      json += escape.data();
    } else {
      json += text.substr(0, bytes);
    }
    text.remove_prefix(std::max<std::size_t>(bytes, 1));
  }
  return json += '"';
}

// One line for each operation, so that records can be compared as text.
std::string to_json(const Memory& memory, std::string_view reason) {
  const RecordHeader* header = memory.header();
  if (header == nullptr) return {};
  const Moment now = Moment::now();
  const TickScale scale(header->began, now);
  std::string json;
  {
    Object object(json);
    object.text("format", "rondo-flight-record-1");
    object.text("version", header->version.data());
    object.text("reason", reason);
    object.number("rank", header->rank);
    object.number("size", header->size);
    object.number("pid", header->pid);
    object.text("host", header->host.data());
    append_failure(object, *header);
    object.number("began_unix_us", header->began.unix_ns / 1000);
    object.time("dumped_us", scale, now.ticks);
    std::string& text = object.name("communicators");
    text += '[';
    bool first = true;
    for (const Log* log : memory.logs()) {
      text += first ? "\n  " : ",\n  ";
      first = false;
      append(text, *log, scale);
    }
    text += ']';
  }
  return json += '\n';
}

bool dump(const Memory& memory, std::string_view reason, const std::filesystem::path& path) {
  const std::string json = to_json(memory, reason);
  if (json.empty()) return false;
  expect_no_special_file(path);
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
