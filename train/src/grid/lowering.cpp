#include "grid/lowering.hpp"

#include <stdexcept>
#include <string>
#include <utility>

#include "model/layer_traits.hpp"

namespace rondo::train {
namespace {

[[noreturn]] void refuse(const LayerSpec& layer, const std::string& why) {
  throw std::invalid_argument("layer " + layer.name + ": " + why);
}

// Every rank has channels of its own, and all of everything else.
bool is_by_channel(const Partition& partition) {
  return partition.parts() == Parts{.c = partition.ranks()};
}

class Lowerer {
 public:
  Lowerer(const Model& model, const std::vector<LayerSplit>& splits, int ranks, std::int64_t images)
      : model_(model),
        splits_(splits),
        grid_{.pr = ranks, .pc = 1},
        shapes_(shapes_of(model, images)),
        value_of_(shapes_.size()) {
    if (splits.size() == model.layers.size()) return;
    throw std::invalid_argument("a model of " + std::to_string(model.layers.size()) +
                                " layers needs as many splits, not " +
                                std::to_string(splits.size()));
  }

  Lowering lower() {
    begin();
    for (std::size_t i = 0; i < model_.layers.size(); ++i) add_layer(i);
    end();
    return std::move(result_);
  }

 private:
  // The first layer that reads the input decides how it lies.
  void begin() {
    Partition input = by_sample(shapes_[0], grid_.pr);
    for (std::size_t i = 0; i < model_.layers.size(); ++i) {
      if (model_.layers[i].inputs[0] != 0) continue;
      input = wanted(i, input);
      break;
    }
    result_.values.push_back(std::move(input));
    value_of_[0] = 0;
  }

  void add_layer(std::size_t i) {
    const LayerSpec& layer = model_.layers[i];
    const Partition x = wanted(i, result_.values[value_of_[layer.inputs[0]]]);
    GraphNode node{.layer = i, .batch_norm = traits_of(layer.kind).batch_statistics};
    for (const ValueId input : layer.inputs) node.inputs.push_back(read(value_of_[input], x));
    value_of_[i + 1] = add(std::move(node), {splits_[i], x, written(i, x)});
  }

  void end() {
    const ValueId last = value_of_.back();
    const Partition& logits = result_.values[last];
    const bool by_images = logits.parts() == Parts{.n = logits.ranks()};
    if (by_images || logits.blocks() == 1) return;
    static_cast<void>(read(last, replicated(logits.extents(), grid_.pr)));
  }

  // The value in the layout `as`, moved there if it lies otherwise.
  ValueId read(ValueId value, const Partition& as) {
    if (result_.values[value] == as) return value;
    for (std::size_t i = 0; i < result_.graph.nodes.size(); ++i) {
      const GraphNode& node = result_.graph.nodes[i];
      if (!node.layer && node.inputs[0] == value && result_.layouts[i].y == as) return i + 1;
    }
    return add({.inputs = {value}}, {{}, result_.values[value], as});
  }

  ValueId add(GraphNode node, GridLayer layout) {
    result_.values.push_back(layout.y);
    result_.graph.nodes.push_back(std::move(node));
    result_.layouts.push_back(std::move(layout));
    return result_.graph.nodes.size();
  }

  // How layer i reads its input, which lies as `now`.
  Partition wanted(std::size_t i, const Partition& now) const {
    const LayerSpec& layer = model_.layers[i];
    if (!has_weights(layer)) return now;
    const LayerSplit& split = splits_[i];
    const tensor::Shape& x = shapes_[layer.inputs[0]];
    switch (split.kind) {
      case SplitKind::sample:
        return by_sample(x, grid_.pr);
      case SplitKind::group:
        return replicated(x, grid_.pr);
      case SplitKind::space:
        if (is_fully_connected(layer)) {
          refuse(layer, "a fully connected layer cannot be split in space");
        }
        if (split.h * split.w != grid_.pr) refuse_parts(layer, split.h, split.w);
        return by_space(x, grid_, split.h, split.w);
      case SplitKind::channel:
        if (split.channels.ranks() != grid_.pr) {
          refuse_parts(layer, split.channels.channels, split.channels.filters);
        }
        if (is_fully_connected(layer)) return replicated(x, grid_.pr);
        return is_by_channel(now) ? now : by_channel(x, grid_);
    }
    refuse(layer, "an unknown kind of split");
  }

  [[noreturn]] void refuse_parts(const LayerSpec& layer, int a, int b) const {
    refuse(layer, "a split in " + std::to_string(a) + " x " + std::to_string(b) +
                      " parts does not give each of " + std::to_string(grid_.pr) +
                      " ranks of a group one");
  }

  // How layer i leaves its output after reading `x`.
  Partition written(std::size_t i, const Partition& x) const {
    const LayerSpec& layer = model_.layers[i];
    const tensor::Shape& y = shapes_[i + 1];
    const bool split_by_channel = splits_[i].kind == SplitKind::channel;
    if (is_fully_connected(layer)) {
      return split_by_channel ? replicated(y, grid_.pr) : x.with_extents(y);
    }
    if (has_weights(layer) && split_by_channel) return output_of(x, splits_[i].channels, y);
    const bool in_space = x.parts().h * x.parts().w > 1;
    if (traits_of(layer.kind).averages_images && in_space) {
      return replicated(y, grid_.pr);
    }
    return x.with_extents(y);
  }

  const Model& model_;
  const std::vector<LayerSplit>& splits_;
  ProcessGrid grid_;
  std::vector<tensor::Shape> shapes_;
  std::vector<ValueId> value_of_;  // where each value of the model is, as it was written
  Lowering result_;
};

}  // namespace

Lowering lower(const Model& model, const std::vector<LayerSplit>& splits, int ranks,
               std::int64_t images) {
  return Lowerer(model, splits, ranks, images).lower();
}

}  // namespace rondo::train
