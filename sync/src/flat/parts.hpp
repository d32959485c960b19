#pragma once

#include <cstddef>

#include <rondo/transport/team.hpp>

namespace rondo::sync::flat {

/// Below this, waking a team costs more than it saves.
inline constexpr std::size_t team_worthwhile = 64 * 1024;

/// Calls work(first, count) for adjacent parts of `size` elements: one part for each thread of
/// `team`, all at the same time; or a single one if there is no team or the array is short.
/// `work` does not throw.
template <typename Work>
void for_each_part(transport::Team* team, std::size_t size, const Work& work) {
  if (team == nullptr || size < team_worthwhile) {
    work(std::size_t{0}, size);
    return;
  }
  struct Shared {
    const Work& work;
    std::size_t size;
    std::size_t parts;
  };
  Shared shared{work, size, static_cast<std::size_t>(team->size())};
  team->run(
      [](void* context, int index) {
        const auto& all = *static_cast<const Shared*>(context);
        const auto part = static_cast<std::size_t>(index);
        const std::size_t first = all.size * part / all.parts;
        all.work(first, all.size * (part + 1) / all.parts - first);
      },
      &shared);
}

}  // namespace rondo::sync::flat
