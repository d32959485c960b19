#pragma once

#include <cstddef>
#include <cstdint>
#include <random>
#include <thread>
#include <vector>

#include <rondo/transport/team.hpp>

namespace rondo::sync::test {

/// Normally distributed, the same for the same seed.
inline std::vector<float> random_values(std::size_t size, std::uint32_t seed) {
  std::mt19937 generator(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(size);
  for (float& value : values) value = normal(generator);
  return values;
}

/// A team whose threads really run at the same time.
class ThreeThreads final : public transport::Team {
 public:
  [[nodiscard]] int size() const noexcept override { return 3; }
  void run(void (*part)(void* context, int index), void* context) override {
    std::thread second(part, context, 1);
    std::thread third(part, context, 2);
    part(context, 0);
    second.join();
    third.join();
  }
};

}  // namespace rondo::sync::test
