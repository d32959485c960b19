#include "trainer/traces.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <numeric>
#include <span>
#include <type_traits>
#include <utility>

#include <rondo/transport/communicator.hpp>
#include <rondo/transport/world.hpp>

namespace rondo::train {
namespace {

static_assert(std::is_trivially_copyable_v<sync::Push>);

std::vector<std::size_t> bytes_by_rank(transport::World& world, std::size_t mine) {
  const std::array own{static_cast<std::int64_t>(mine)};
  std::vector<std::int64_t> all(static_cast<std::size_t>(world.size()));
  world.communicator().allgather(std::span<const std::int64_t>(own), std::span(all)).wait();
  return {all.begin(), all.end()};
}

// std::stable_sort would do, but for a warning of clang about the library that gcc 12 brings.
std::vector<sync::Push> by_version(const std::vector<sync::Push>& pushes) {
  std::vector<std::size_t> order(pushes.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::sort(order, {}, [&](std::size_t i) { return std::pair(pushes[i].version, i); });
  std::vector<sync::Push> sorted;
  for (const std::size_t i : order) sorted.push_back(pushes[i]);
  return sorted;
}

}  // namespace

std::vector<sync::Push> gather_pushes(transport::World& world,
                                      const std::vector<sync::Push>& mine) {
  std::vector<std::uint8_t> own(mine.size() * sizeof(sync::Push));
  if (!own.empty()) std::memcpy(own.data(), mine.data(), own.size());
  const std::vector<std::size_t> counts = bytes_by_rank(world, own.size());
  std::size_t total = 0;
  for (const std::size_t count : counts) total += count;
  std::vector<std::uint8_t> bytes(total);
  world.communicator()
      .allgather(std::span<const std::uint8_t>(own), std::span(bytes),
                 std::span<const std::size_t>(counts))
      .wait();
  if (world.rank() != 0) return {};
  std::vector<sync::Push> all(total / sizeof(sync::Push));
  if (total > 0) std::memcpy(all.data(), bytes.data(), total);
  return by_version(all);
}

}  // namespace rondo::train
