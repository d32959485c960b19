// The one place where the keys of [[model.layers]] stand. A new one is a member of
// Experiment::Layer, a line here, and what model/described_model.cpp makes of it.

#include "config/layer_keys.hpp"

#include <algorithm>
#include <cstdint>
#include <type_traits>
#include <utility>

namespace rondo::train {
namespace {

using Layer = Experiment::Layer;
using Kinds = std::vector<std::string_view>;

constexpr double largest_extent = 65536.0;
constexpr double largest_outputs = 16777216.0;

template <auto member>
LayerKey key(std::string_view name, Limits limits = {}, Kinds kinds = {}, bool required = false) {
  using Type = std::remove_cvref_t<decltype(std::declval<Layer&>().*member)>;
  return {.name = name,
          .get = [](const Layer& layer) -> Value { return Type(layer.*member); },
          .set = [](Layer& layer, const Value& v) { layer.*member = std::get<Type>(v); },
          .limits = std::move(limits),
          .kinds = std::move(kinds),
          .required = required};
}

std::vector<LayerKey> make_layer_keys() {
  const Kinds convolution = {"convolution"};
  const Kinds connected = {"fully_connected"};
  const Kinds norm = {"batch_norm"};
  const Kinds pooling = {"max_pooling", "average_pooling"};
  const Kinds windows = {"convolution", "max_pooling", "average_pooling"};
  const Kinds active = {"convolution", "batch_norm", "fully_connected"};
  return {
      key<&Layer::kind>("kind",
                        one_of({"convolution", "batch_norm", "max_pooling", "average_pooling",
                                "global_average_pooling", "fully_connected"})),
      key<&Layer::name>("name"),
      key<&Layer::from>("from"),
      key<&Layer::residual>("residual", {}, norm),
      key<&Layer::filters>("filters", within(1, largest_extent), convolution, true),
      key<&Layer::outputs>("outputs", within(1, largest_outputs), connected, true),
      key<&Layer::kernel>("kernel", within(1, largest_extent), convolution),
      key<&Layer::window>("window", within(1, largest_extent), pooling),
      key<&Layer::stride>("stride", within(0, largest_extent), windows),
      key<&Layer::padding>("padding", within(-1, largest_extent), windows),
      key<&Layer::bias>("bias", {}, convolution),
      key<&Layer::activation>("activation", one_of({"auto", "none", "relu"}), active),
      key<&Layer::initial>("initial", one_of({"he_normal", "uniform_fan_in"}), convolution),
  };
}

}  // namespace

std::span<const LayerKey> layer_keys() {
  static const std::vector<LayerKey> keys = make_layer_keys();
  return keys;
}

bool belongs_to(const LayerKey& key, std::string_view kind) {
  return key.kinds.empty() || std::ranges::find(key.kinds, kind) != key.kinds.end();
}

}  // namespace rondo::train
