#pragma once

#include <cstdint>

#include "recorder/layout.hpp"

namespace rondo::transport::recorder {

/// What is known of an operation when it is posted; see Entry.
struct Facts {
  std::uint64_t number = 0;
  std::uint8_t operation = 0;
  std::uint8_t type = 0;
  std::uint8_t reduction = 0;
  Stage stage = Stage::queued;
  std::int32_t partner = -1;
  std::uint64_t count = 0;
  std::uint64_t bytes = 0;
};

/// An operation's entry, as long as no later operation has taken its place in the ring.
///
/// All stores are relaxed and go to one cache line: a reader takes what it finds. Reading the clock
/// costs more than everything else here, so who ends within a microsecond is not timed.
class Stamp {
 public:
  Stamp() noexcept = default;
  Stamp(Entry& entry, std::uint64_t index) noexcept : entry_(&entry), index_(index) {}

  void note(Stage stage) noexcept {
    if (!valid()) return;
    note_untimed(stage);
    if (stage == Stage::running) entry_->started.store(ticks(), std::memory_order_relaxed);
    if (stage == Stage::complete || stage == Stage::failed) end();
  }

  void note_untimed(Stage stage) noexcept {
    if (!valid()) return;
    entry_->stage.store(static_cast<std::uint8_t>(stage), std::memory_order_relaxed);
  }

  /// The operation has ended just now, unless that has been noted before.
  void end() noexcept {
    if (!valid()) return;
    entry_->ended.store(ticks(), std::memory_order_relaxed);
    entry_ = nullptr;
  }

 private:
  [[nodiscard]] bool valid() const noexcept {
    return entry_ != nullptr && entry_->index.load(std::memory_order_relaxed) == index_;
  }

  Entry* entry_ = nullptr;
  std::uint64_t index_ = 0;
};

/// Puts an operation into a log, over the oldest one. Never waits and never allocates.
[[nodiscard]] inline Stamp record(Log& log, const Facts& facts) noexcept {
  // Relaxed: nobody else writes it.
  const std::uint64_t index = log.posted.load(std::memory_order_relaxed) + 1;
  Entry& entry = log.ring[(index - 1) % log_entries];
  constexpr auto relaxed = std::memory_order_relaxed;
  entry.index.store(0, relaxed);
  // A reader that sees anything of the new operation sees that the old one is over.
  std::atomic_thread_fence(std::memory_order_release);
  entry.number.store(facts.number, relaxed);
  entry.operation.store(facts.operation, relaxed);
  entry.type.store(facts.type, relaxed);
  entry.reduction.store(facts.reduction, relaxed);
  entry.stage.store(static_cast<std::uint8_t>(facts.stage), relaxed);
  entry.partner.store(facts.partner, relaxed);
  entry.count.store(facts.count, relaxed);
  entry.bytes.store(facts.bytes, relaxed);
  const std::uint64_t now = ticks();
  entry.posted.store(now, relaxed);
  entry.started.store(facts.stage == Stage::running ? now : 0, relaxed);
  entry.ended.store(0, relaxed);
  entry.index.store(index, std::memory_order_release);
  log.posted.store(index, relaxed);
  // The ring is larger than the first cache: the next operation's stores must not wait for it.
  __builtin_prefetch(&log.ring[index % log_entries], 1);
  return {entry, index};
}

}  // namespace rondo::transport::recorder
