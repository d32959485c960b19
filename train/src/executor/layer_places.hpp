#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <vector>

#include <rondo/train/model.hpp>

namespace rondo::train {

/// Where one layer's numbers lie in the flat arrays of the ParameterLayout.
struct LayerPlace {
  std::optional<std::size_t> group = {};  ///< none: the layer learns nothing
  std::size_t offset = 0;
  std::size_t size = 0;
  std::size_t statistics_offset = 0;
  std::size_t statistics_size = 0;

  template <typename T>
  [[nodiscard]] std::span<T> parameters_of(std::span<T> flat) const {
    return flat.subspan(offset, size);
  }
  template <typename T>
  [[nodiscard]] std::span<T> statistics_of(std::span<T> flat) const {
    return flat.subspan(statistics_offset, statistics_size);
  }
};

/// One place a layer, in the model's order.
[[nodiscard]] std::vector<LayerPlace> places_of(const Model& model, const ParameterLayout& layout);

}  // namespace rondo::train
