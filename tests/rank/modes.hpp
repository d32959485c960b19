#pragma once

// The orders that a test can give to a rank, and how a rank compares results.

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <span>
#include <string>
#include <type_traits>

#include <rondo/transport/element.hpp>
#include <rondo/transport/world.hpp>

namespace rondo::test {

/// The number that element `i` of what `rank` gives stands for. Small, so that sums over the ranks
/// of a test are exact in every type.
constexpr int value_of(std::size_t rank, std::size_t i) noexcept {
  return static_cast<int>((rank + 1 + i * 5) % 7);
}

/// `number` as a T, and back.
template <typename T>
T to_element(int number) {
  if constexpr (std::is_same_v<T, transport::Bfloat16>) {
    const auto value = static_cast<float>(number);
    std::uint32_t bits = 0;
    static_assert(sizeof(bits) == sizeof(value));
    __builtin_memcpy(&bits, &value, sizeof(bits));
    return {static_cast<std::uint16_t>(bits >> 16U)};
  } else {
    return static_cast<T>(number);
  }
}
template <typename T>
double to_number(T element) {
  if constexpr (std::is_same_v<T, transport::Bfloat16>) {
    const auto bits = static_cast<std::uint32_t>(element.bits) << 16U;
    float value = 0;
    __builtin_memcpy(&value, &bits, sizeof(bits));
    return static_cast<double>(value);
  } else {
    return static_cast<double>(element);
  }
}

/// Compares what a rank received with what it must be, and says what differs.
class Checks {
 public:
  explicit Checks(int rank) : rank_(rank) {}

  /// Element i of `got` must stand for expected(i).
  template <typename T, typename Expected>
  void elements(const std::string& what, std::span<const T> got, Expected expected) {
    ++done_;
    for (std::size_t i = 0; i < got.size(); ++i) {
      if (to_number(got[i]) == static_cast<double>(expected(i))) continue;
      ++wrong_;
      std::fprintf(stderr, "rank %d: %s: element %zu of %zu is %g, not %g\n", rank_, what.c_str(),
                   i, got.size(), to_number(got[i]), static_cast<double>(expected(i)));
      return;
    }
  }

  [[nodiscard]] int done() const noexcept { return done_; }
  [[nodiscard]] int wrong() const noexcept { return wrong_; }

 private:
  int rank_;
  int done_ = 0;
  int wrong_ = 0;
};

/// Every collective with every type and operation, sizes around the number of ranks, both kinds
/// of memory, disjoint communicators at once.
void check_collectives(transport::World& world, Checks& checks);

/// Messages, halos and tokens around the ring of ranks.
void check_point_to_point(transport::World& world, Checks& checks);

/// Trains LeNet-5 for 20 steps on made-up images; rank 0 writes the parameters to `file`, as
/// floats.
int train_and_dump(transport::World& world, const std::filesystem::path& file);

/// Do two such files agree to `tolerance`, relative to the norm? Says by how much they differ.
int compare_dumps(const std::filesystem::path& one, const std::filesystem::path& other,
                  double tolerance);

}  // namespace rondo::test
