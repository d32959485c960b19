#include "config/layer_list.hpp"

#include <cstddef>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "config/layer_keys.hpp"
#include "model/described.hpp"
#include "model/names.hpp"

namespace rondo::train {
namespace {

using Layer = Experiment::Layer;

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
    label_ = fmt::format("model.layers: layer {}", number);
    const Assignment* name = find(table, "name");
    if (name == nullptr || !name->usable) return;
    const auto* text = std::get_if<std::string>(&name->value);
    if (text != nullptr && !text->empty()) label_ += fmt::format(" ({})", *text);
  }

  [[nodiscard]] Layer read() const {
    Layer layer;
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
    const Value expected = key.get(layer);
    if (!assignment.usable || assignment.value.index() != expected.index()) {
      fail(assignment.where, fmt::format("{}: expected {}, found {}", key.name, type_name(expected),
                                         assignment.found));
    }
    const std::string problem = complaint(key.limits, assignment.value);
    if (!problem.empty()) fail(assignment.where, fmt::format("{}: {}", key.name, problem));
    key.set(layer, assignment.value);
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

/// Where a layer's table stands; the last list counts.
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
