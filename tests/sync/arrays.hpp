#pragma once

#include <cstddef>
#include <cstdint>
#include <memory_resource>
#include <string>
#include <vector>

#include <rondo/sync/replica.hpp>
#include <rondo/sync/update_scheme.hpp>
#include <rondo/transport/world.hpp>

namespace rondo::sync::test {

/// One rank's arrays in its World's arena, zeroed, and the Replica that they make: layers of the
/// given sizes, each reduced over the whole World.
class Arrays {
 public:
  Arrays(transport::World& world, const std::vector<std::size_t>& layer_sizes,
         std::size_t statistic_count = 0)
      : parameters(total(layer_sizes), 0.0F, &world.arena()),
        gradients(parameters.size(), 0.0F, &world.arena()),
        statistics(statistic_count, 0.0F),
        world_(world),
        layer_sizes_(layer_sizes) {}

  [[nodiscard]] Replica replica() {
    Replica result{&world_, parameters, gradients, statistics, {}};
    std::size_t offset = 0;
    for (const std::size_t size : layer_sizes_) {
      const std::string name = "layer" + std::to_string(result.layers.size());
      result.layers.push_back(
          {name, offset, size, {nullptr, &world_.communicator(), &world_.communicator()}});
      offset += size;
    }
    return result;
  }

  [[nodiscard]] std::size_t layers() const noexcept { return layer_sizes_.size(); }
  [[nodiscard]] transport::World& world() noexcept { return world_; }

  std::pmr::vector<float> parameters;
  std::pmr::vector<float> gradients;
  std::vector<float> statistics;

 private:
  static std::size_t total(const std::vector<std::size_t>& sizes) {
    std::size_t sum = 0;
    for (const std::size_t size : sizes) sum += size;
    return sum;
  }

  transport::World& world_;
  std::vector<std::size_t> layer_sizes_;
};

/// The values that the steps of a test share.
struct StepOptions {
  std::size_t samples = 1;  ///< of each rank
  double rate = 0.125;
};

/// Step `index` of a training in which all ranks have equally many samples.
inline Step step_of(const transport::World& world, std::int64_t index,
                    const StepOptions& options = {}) {
  return {.index = index,
          .local_samples = options.samples,
          .global_samples = options.samples * static_cast<std::size_t>(world.size()),
          .learning_rate = options.rate};
}

/// A gradient that differs between ranks, steps and elements. It is a whole number from -4 to 3, so
/// that sums over 1, 2 or 4 ranks and products with a power of two are exact.
inline float small_gradient(int rank, int step, std::size_t element = 0) {
  return static_cast<float>((rank * 5 + step * 3 + static_cast<int>(element)) % 8 - 4);
}

/// One iteration of `scheme`, where gradient(element, parameter) is the sum of the gradients of
/// this rank's samples. Layers become final from the last one on, which `rotation` moves.
template <typename Gradient>
void iterate(UpdateScheme& scheme, Arrays& arrays, const Step& step, Gradient gradient,
             std::size_t rotation = 0) {
  scheme.begin(step);
  for (std::size_t layer = 0; layer < arrays.layers(); ++layer) scheme.make_ready(layer);
  for (std::size_t i = 0; i < arrays.gradients.size(); ++i) {
    arrays.gradients[i] = gradient(i, arrays.parameters[i]);
  }
  for (std::size_t layer = arrays.layers(); layer-- > 0;) {
    scheme.gradients_final((layer + rotation) % arrays.layers());
    if (rotation > 0) arrays.world().progress();
  }
  scheme.finish();
}

}  // namespace rondo::sync::test
