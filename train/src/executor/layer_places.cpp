#include "executor/layer_places.hpp"

#include "model/layer_traits.hpp"

namespace rondo::train {
namespace {

// Statistics of a layer are adjacent, and in the layout in the same order as the layers.
void place_statistics(const ParameterLayout& layout, std::size_t& next, LayerPlace& place) {
  constexpr std::size_t per_batch_norm = 2;  // running mean, running variance
  place.statistics_offset = layout.statistics[next].offset;
  for (std::size_t i = 0; i < per_batch_norm; ++i) {
    place.statistics_size += layout.statistics[next++].size();
  }
}

}  // namespace

std::vector<LayerPlace> places_of(const Model& model, const ParameterLayout& layout) {
  std::vector<LayerPlace> places;
  std::size_t group = 0;
  std::size_t statistic = 0;
  for (const LayerSpec& layer : model.layers) {
    LayerPlace place;
    if (group < layout.groups.size() && layout.groups[group].name == layer.name) {
      place.group = group;
      place.offset = layout.groups[group].offset;
      place.size = layout.groups[group].size;
      ++group;
    }
    if (traits_of(layer.kind).batch_statistics) {
      place_statistics(layout, statistic, place);
    }
    places.push_back(place);
  }
  return places;
}

}  // namespace rondo::train
