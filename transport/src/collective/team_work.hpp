#pragma once

#include <algorithm>
#include <cstddef>

#include <rondo/transport/team.hpp>

#include "base/cache_line.hpp"

namespace rondo::transport {

// How a range is cut: into slices for ranks, and into parts for the threads of a team. Both are
// decided by lengths and numbers alone, so neither depends on timing. All work that is cut here is
// done element by element, so its bits do not depend on the number of threads.

/// A half-open range of elements or bytes.
struct Range {
  std::size_t begin = 0;
  std::size_t end = 0;

  [[nodiscard]] constexpr std::size_t size() const noexcept { return end - begin; }
};

/// Part `index` of `parts` of `count` elements: as even as whole units of `unit` elements allow
/// (a cache line, so that no two ranks store into the same one).
[[nodiscard]] constexpr Range slice(std::size_t count, std::size_t parts, std::size_t index,
                                    std::size_t unit) noexcept {
  const std::size_t units = (count + unit - 1) / unit;
  const std::size_t begin = units * index / parts * unit;
  const std::size_t end = units * (index + 1) / parts * unit;
  return {std::min(begin, count), std::min(end, count)};
}

/// Fewer bytes are left to the calling thread. At 8 GB/s it copies so many in 8 us, and to wake the
/// threads of a team and to wait for them takes some microseconds, too.
inline constexpr std::size_t team_worthwhile_bytes = std::size_t{64} << 10U;

/// Threads that work on a step: those of the team, or the calling one.
[[nodiscard]] inline std::size_t threads_of(const Team* team) noexcept {
  return team == nullptr ? 1 : static_cast<std::size_t>(team->size());
}

/// The part of a range that one thread works on.
struct TeamPart : Range {
  std::size_t thread = 0;
};

/// Calls work(TeamPart) for parts of [0, bytes), cut on cache lines: one part for each thread of
/// `team`, all at the same time; or a single one if there is no team or the range is short. No part
/// cuts an element in two if the range begins with a whole one. `work` does not throw.
template <typename Work>
void for_parts(Team* team, std::size_t bytes, const Work& work) {
  const std::size_t threads = threads_of(team);
  if (threads == 1 || bytes < team_worthwhile_bytes) {
    work(TeamPart{{0, bytes}, 0});
    return;
  }
  struct Shared {
    const Work& work;
    std::size_t bytes;
    std::size_t threads;
  };
  Shared shared{work, bytes, threads};
  team->run(
      [](void* context, int index) {
        const auto& all = *static_cast<const Shared*>(context);
        const auto thread = static_cast<std::size_t>(index);
        all.work(TeamPart{slice(all.bytes, all.threads, thread, cache_line_bytes), thread});
      },
      &shared);
}

/// Pieces of memory that stand one after the other in a range, as a thread sees them that works on
/// a part of it.
class Pieces {
 public:
  explicit Pieces(const Range& part) noexcept : part_(part) {}

  /// The next piece. Calls work(Range) with what of it is in the part, counted from its begin.
  template <typename Work>
  void next(std::size_t bytes, const Work& work) {
    const std::size_t end = at_ + bytes;
    const Range mine{std::clamp(part_.begin, at_, end), std::clamp(part_.end, at_, end)};
    if (mine.size() > 0) work(Range{mine.begin - at_, mine.end - at_});
    at_ = end;
  }
  /// The bytes of the pieces so far.
  [[nodiscard]] std::size_t bytes() const noexcept { return at_; }

 private:
  Range part_;
  std::size_t at_ = 0;
};

/// As for_parts(), of pieces that count together: many short ones are long enough for a team.
/// each(Pieces&) calls next() for all pieces in turn; it is called once to learn how long they are,
/// and then by each thread.
template <typename Each>
void for_pieces(Team* team, const Each& each) {
  Pieces all(Range{});
  each(all);
  for_parts(team, all.bytes(), [&each](const TeamPart& part) {
    Pieces pieces(part);
    each(pieces);
  });
}

}  // namespace rondo::transport
