#include "recorder/recorder.hpp"

#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <new>
#include <utility>

namespace rondo::transport::recorder {
namespace {

// Zero-terminated, cut where there is no room.
template <std::size_t Size>
void fill(std::array<char, Size>& field, std::string_view text) {
  const std::size_t length = std::min(text.size(), Size - 1);
  std::memcpy(field.data(), text.data(), length);
  field[length] = '\0';
}

}  // namespace

Recorder::Recorder(std::shared_ptr<Memory> memory, int rank, int size, std::string_view host)
    : memory_(std::move(memory)) {
  shm::Segment& segment = memory_->segment();
  segment.grow(sizeof(Header));
  auto* header = ::new (segment.base()) Header{};
  header->source = tick_source;
  header->rank = rank;
  header->size = size;
  header->pid = ::getpid();
  header->began = Moment::now();
  fill(header->version, RONDO_VERSION);
  fill(header->host, host);
  // Release: whoever finds the magic sees the rest.
  header->magic.store(Header::expected_magic, std::memory_order_release);
}

Header& Recorder::header() const noexcept {
  return *std::launder(reinterpret_cast<Header*>(memory_->segment().base()));
}

Log* Recorder::make_log() {
  const std::uint32_t place = header().logs.load(std::memory_order_relaxed);
  shm::Segment& segment = memory_->segment();
  try {
    segment.grow(offset_of_log(place + 1));
    closed_.reserve(place + 1);  // so that closing never allocates
  } catch (const std::exception&) {
    return nullptr;
  }
  auto* log = ::new (segment.base() + offset_of_log(place)) Log{};
  // Release: whoever counts it sees that it is empty.
  header().logs.store(place + 1, std::memory_order_release);
  return log;
}

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
