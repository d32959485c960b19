// The communicators of a grid. Splitting a communicator is a collective operation, so each set of
// ranks is made once and kept; all ranks ask for the same sets in the same order.

#include "grid/communicators.hpp"

#include <cstddef>
#include <stdexcept>
#include <string>

namespace rondo::train {
namespace {

std::vector<int> colors_of(ProcessGrid grid, int (ProcessGrid::*of)(int) const noexcept) {
  std::vector<int> colors;
  for (int rank = 0; rank < grid.ranks(); ++rank) colors.push_back((grid.*of)(rank));
  return colors;
}

}  // namespace

GridCommunicators::GridCommunicators(transport::Communicator& all, ProcessGrid grid)
    : all_(all), grid_(grid) {
  if (grid.pr < 1 || grid.pc < 1 || grid.ranks() != all.size()) {
    throw std::invalid_argument("a grid of " + std::to_string(grid.pr) + " x " +
                                std::to_string(grid.pc) + " needs as many ranks, not " +
                                std::to_string(all.size()));
  }
  static_cast<void>(replica());
}

transport::Communicator& GridCommunicators::replica() {
  return split(colors_of(grid_, &ProcessGrid::replica_of),
               colors_of(grid_, &ProcessGrid::position_of));
}

transport::Communicator& GridCommunicators::across() {
  return split(colors_of(grid_, &ProcessGrid::position_of),
               colors_of(grid_, &ProcessGrid::replica_of));
}

// Equal colors and keys of all ranks mean the same communicators, on every rank.
transport::Communicator& GridCommunicators::split(const std::vector<int>& colors,
                                                  const std::vector<int>& keys) {
  std::vector<int> members = colors;
  members.insert(members.end(), keys.begin(), keys.end());
  const auto found = made_.find(members);
  if (found != made_.end()) return found->second;
  const auto mine = static_cast<std::size_t>(all_.rank());
  return made_.emplace(std::move(members), all_.split(colors[mine], keys[mine])).first->second;
}

}  // namespace rondo::train
