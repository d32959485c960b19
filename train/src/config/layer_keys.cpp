// The keys of [[model.layers]]. A new one is a member of Experiment::Layer and a line here; which
// kinds of layers have it, and what they make of it, stands in the sources of layers/.

#include "config/layer_keys.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <type_traits>
#include <utility>

#include "layers/layer_type.hpp"

namespace rondo::train {
namespace {

using Layer = Experiment::Layer;

constexpr double largest_extent = 65536.0;
constexpr double largest_outputs = 16777216.0;

template <auto member>
LayerKey key(std::string_view name, Limits limits = {}) {
  using Type = std::remove_cvref_t<decltype(std::declval<Layer&>().*member)>;
  return {.name = name,
          .get = [](const Layer& layer) -> Value { return Type(layer.*member); },
          .set = [](Layer& layer, const Value& v) { layer.*member = std::get<Type>(v); },
          .limits = std::move(limits)};
}

std::vector<std::string> names_of_kinds() {
  std::vector<std::string> names;
  for (const DescribedKind& kind : described_kinds()) names.emplace_back(kind.name);
  return names;
}

std::vector<LayerKey> make_layer_keys() {
  return {
      key<&Layer::kind>("kind", one_of(names_of_kinds())),
      key<&Layer::name>("name"),
      key<&Layer::from>("from"),
      key<&Layer::residual>("residual"),
      key<&Layer::filters>("filters", within(1, largest_extent)),
      key<&Layer::outputs>("outputs", within(1, largest_outputs)),
      key<&Layer::kernel>("kernel", within(1, largest_extent)),
      key<&Layer::window>("window", within(1, largest_extent)),
      key<&Layer::stride>("stride", within(0, largest_extent)),
      key<&Layer::padding>("padding", within(-1, largest_extent)),
      key<&Layer::bias>("bias"),
      key<&Layer::activation>("activation", one_of({"auto", "none", "relu"})),
      key<&Layer::initial>("initial", one_of({"he_normal", "uniform_fan_in"})),
  };
}

bool contains(const std::vector<std::string_view>& names, std::string_view name) {
  return std::ranges::find(names, name) != names.end();
}

}  // namespace

std::span<const LayerKey> layer_keys() {
  static const std::vector<LayerKey> keys = make_layer_keys();
  return keys;
}

bool belongs_to(const LayerKey& key, std::string_view kind) {
  static constexpr std::array<std::string_view, 3> of_all = {"kind", "name", "from"};
  if (std::ranges::find(of_all, key.name) != of_all.end()) return true;
  const DescribedKind* described = find_kind(kind);
  return described != nullptr && contains(described->keys, key.name);
}

bool is_required(const LayerKey& key, std::string_view kind) {
  const DescribedKind* described = find_kind(kind);
  return described != nullptr && contains(described->required, key.name);
}

}  // namespace rondo::train
