#pragma once

// Every collective over links, run by simulated ranks: is every element used once, and is what each
// rank sends what the closed form says?

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace rondo::test {

/// The traffic of some simulated operations together.
struct SimulatedTraffic {
  std::uint64_t operations = 0;
  std::uint64_t messages = 0;
  std::uint64_t bytes = 0;
};

struct SimulatedCollective {
  std::string name;
  /// Runs it once or, where there is a root, for several roots (all of them up to 64 ranks).
  /// Throws std::runtime_error, which says what is wrong.
  std::function<SimulatedTraffic(std::size_t ranks)> check;
};

[[nodiscard]] const std::vector<SimulatedCollective>& simulated_collectives();

}  // namespace rondo::test
