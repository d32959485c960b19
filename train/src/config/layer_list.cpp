// The keys of [[model.layers]]. A new one is a member of Experiment::Layer and a line here; which
// kinds of layers have it, and what they make of it, stands in the sources of layers/.
//
// A layer is read in two steps: its kind first, which says what other keys it may have; then those
// keys. So a key that exists but does not belong to the kind gets a message of its own. After that
// the whole model is put together once, to find layers that do not fit each other.

#include "config/layer_list.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "layers/layer_type.hpp"
#include "model/described.hpp"
#include "model/names.hpp"

namespace rondo::train {
namespace {

using Layer = Experiment::Layer;

constexpr double largest_extent = 65536.0;
constexpr double largest_outputs = 16777216.0;

// As Section::key() in keys.cpp, for members of a layer.
template <auto member>
LayerKey key(std::string_view name, Limits limits = {}) {
  using Type = std::remove_cvref_t<decltype(std::declval<Layer&>().*member)>;
  return {.name = name,
          .get = [](const Layer& layer) -> Value { return Type(layer.*member); },
          .set = [](Layer& layer, const Value& v) { layer.*member = std::get<Type>(v); },
          .limits = std::move(limits)};
}

// From the list of kinds, so that a new kind needs no line here.
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
      key<&Layer::with>("with"),
      key<&Layer::filters>("filters", within(1, largest_extent)),
      key<&Layer::outputs>("outputs", within(1, largest_outputs)),
      key<&Layer::kernel>("kernel", within(1, largest_extent)),
      key<&Layer::window>("window", within(1, largest_extent)),
      key<&Layer::stride>("stride", within(0, largest_extent)),
      key<&Layer::padding>("padding", within(-1, largest_extent)),
      key<&Layer::groups>("groups", within(1, largest_extent)),
      key<&Layer::probability>("probability", {.least = 0.0, .most = 1.0, .open_most = true}),
      key<&Layer::function>("function", one_of({"relu", "relu6"})),
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

namespace {

// Has a layer of this kind the key? The kinds themselves list their keys (DescribedKind::keys).
bool belongs_to(const LayerKey& key, std::string_view kind) {
  static constexpr std::array<std::string_view, 3> of_all = {"kind", "name", "from"};
  if (std::ranges::find(of_all, key.name) != of_all.end()) return true;
  const DescribedKind* described = find_kind(kind);
  return described != nullptr && contains(described->keys, key.name);
}

// Must a layer of this kind be given it?
bool is_required(const LayerKey& key, std::string_view kind) {
  const DescribedKind* described = find_kind(kind);
  return described != nullptr && contains(described->required, key.name);
}

const Assignment* find(const Assignment& table, std::string_view name) {
  for (const Assignment& assignment : table.parts) {
    if (assignment.name == name) return &assignment;
  }
  return nullptr;
}

// One table; `number` counts from 1.
class LayerReader {
 public:
  LayerReader(const Assignment& table, std::size_t number) : table_(table) {
    // Layers need no name; the number is how people find the table.
    label_ = fmt::format("model.layers: layer {}", number);
    const Assignment* name = find(table, "name");
    if (name == nullptr || !name->usable) return;
    const auto* text = std::get_if<std::string>(&name->value);
    if (text != nullptr && !text->empty()) label_ += fmt::format(" ({})", *text);
  }

  [[nodiscard]] Layer read() const {
    Layer layer;
    // The kind may stand anywhere in the table, but it is read first.
    const LayerKey& kind = layer_keys().front();
    const Assignment* kind_given = find(table_, kind.name);
    if (kind_given == nullptr) {
      fail(table_.where, fmt::format("missing key 'kind'; set it to one of {}",
                                     fmt::join(kind.limits.names, ", ")));
    }
    set(layer, kind, *kind_given);
    for (const Assignment& assignment : table_.parts) {
      set(layer, find_key(layer.kind, assignment), assignment);
    }
    expect_required(layer.kind);
    return layer;
  }

 private:
  [[noreturn]] void fail(std::string_view where, const std::string& problem) const {
    fail_on_config(where, fmt::format("{}: {}", label_, problem));
  }

  [[nodiscard]] const LayerKey& find_key(std::string_view kind,
                                         const Assignment& assignment) const {
    std::vector<std::string> names;
    bool is_known = false;
    for (const LayerKey& key : layer_keys()) {
      if (belongs_to(key, kind)) {
        if (key.name == assignment.name) return key;
        names.emplace_back(key.name);
      } else if (key.name == assignment.name) {
        is_known = true;
      }
    }
    if (is_known) {
      fail(assignment.where, fmt::format("a layer of kind \"{}\" has no '{}'; choose one of {}",
                                         kind, assignment.name, fmt::join(names, ", ")));
    }
    fail(assignment.where,
         fmt::format("unknown key '{}'; {}", assignment.name, suggest(assignment.name, names)));
  }

  void set(Layer& layer, const LayerKey& key, const Assignment& assignment) const {
    key.set(layer, checked_value(assignment, key.get(layer), key.limits,
                                 fmt::format("{}: {}", label_, key.name)));
  }

  void expect_required(std::string_view kind) const {
    for (const LayerKey& key : layer_keys()) {
      if (!is_required(key, kind) || find(table_, key.name) != nullptr) continue;
      fail(table_.where, fmt::format("missing key '{}'", key.name));
    }
  }

  const Assignment& table_;
  std::string label_;
};

/// Where a layer's table stands; the last list counts. For mistakes that are found when the layers
/// are put together, after the file was read.
std::string place_of(std::span<const Assignment> assignments, std::size_t layer,
                     std::string_view name) {
  std::string place(name);
  for (const Assignment& assignment : assignments) {
    if (assignment.section != "model" || assignment.name != "layers") continue;
    if (layer < assignment.parts.size()) place = assignment.parts[layer].where;
  }
  return place;
}

}  // namespace

LayerList read_layers(std::span<const Assignment> tables) {
  LayerList layers;
  for (const Assignment& table : tables) {
    layers.push_back(LayerReader(table, layers.size() + 1).read());
  }
  return layers;
}

void check_layers(const Experiment& experiment, std::span<const Assignment> assignments,
                  std::string_view name) {
  if (experiment.model.name != custom_model) return;
  try {
    static_cast<void>(make_described_model(experiment.model));
  } catch (const DescriptionError& error) {
    const auto layer = error.layer();
    fail_on_config(layer ? place_of(assignments, *layer, name) : std::string(name), error.what());
  }
}

}  // namespace rondo::train
