// Inference: a trained model is folded into one with fewer layers, and an executor without training
// runs that.
//
// With running values a batch norm is one factor and one shift for each channel, which the
// convolution before it can have in its weights and bias. This saves a pass over every activation,
// and the ReLU runs in the convolution's kernel. A batch norm that cannot be folded (it is in front
// of its convolution, or its input has other readers) stays as it is.

#include <rondo/train/predictor.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <optional>
#include <string>
#include <utility>
#include <variant>

#include <rondo/tensor/batch_norm.hpp>
#include <rondo/train/executor.hpp>
#include <rondo/train/layer_type.hpp>

#include "weights/model_weights.hpp"

namespace rondo::train {
namespace {

/// The named arrays of a trained model.
class Arrays {
 public:
  explicit Arrays(const TrainedModel& trained)
      : trained_(trained), layout_(layout_of(trained.model)) {}

  /// Empty where there is none of that name.
  [[nodiscard]] std::span<const float> learned(const std::string& name) const {
    return find(layout_.parameters, trained_.parameters, name);
  }
  [[nodiscard]] std::span<const float> measured(const std::string& name) const {
    return find(layout_.statistics, trained_.statistics, name);
  }

 private:
  static std::span<const float> find(const std::vector<Parameter>& entries,
                                     std::span<const float> flat, const std::string& name) {
    const auto found = std::ranges::find(entries, name, &Parameter::name);
    if (found == entries.end()) return {};
    return flat.subspan(found->offset, found->size());
  }

  const TrainedModel& trained_;
  ParameterLayout layout_;
};

/// The effect of a batch norm on each channel: y = factor x + shift.
struct ChannelMap {
  std::vector<float> factor = {};
  std::vector<float> shift = {};
};

// Empty where the layer has other arrays than our batch norm.
ChannelMap map_of(const Arrays& arrays, const std::string& norm, float epsilon) {
  const auto weight = arrays.learned(norm + ".weight");
  const auto bias = arrays.learned(norm + ".bias");
  const auto mean = arrays.measured(norm + ".running_mean");
  const auto variance = arrays.measured(norm + ".running_var");
  ChannelMap map;
  if (std::min({bias.size(), mean.size(), variance.size()}) < weight.size()) return map;
  for (std::size_t c = 0; c < weight.size(); ++c) {
    map.factor.push_back(weight[c] / std::sqrt(variance[c] + epsilon));
    map.shift.push_back(bias[c] - mean[c] * map.factor[c]);
  }
  return map;
}

/// Goes through the layers, and leaves out what others take over.
class Folder {
 public:
  explicit Folder(const TrainedModel& trained)
      : old_(trained),
        arrays_(trained),
        shapes_(shapes_of(trained.model, 1)),
        readers_(trained.model.layers.size() + 1, 0),
        folds_(trained.model.layers.size()),
        value_(trained.model.layers.size() + 1, 0) {
    for (const LayerSpec& layer : old_.model.layers) {
      for (const ValueId input : layer.inputs) ++readers_[input];
    }
    for (std::size_t i = 0; i < old_.model.layers.size(); ++i) find_fold(i);
  }

  TrainedModel fold() {
    TrainedModel folded{.model = old_.model};
    folded.model.layers.clear();
    for (std::size_t i = 0; i < old_.model.layers.size(); ++i) add(i, folded.model);
    copy_arrays(folded);
    return folded;
  }

 private:
  // The layer's effect on each channel if it is a batch norm; else nothing. A program's own layer
  // with statistics of batches need not be one.
  [[nodiscard]] ChannelMap map_of_norm(std::size_t i) const {
    const LayerSpec& layer = old_.model.layers[i];
    if (!layer.kind->traits().batch_statistics) return {};
    const KernelSpec spec = layer.kind->spec(shapes_[layer.inputs[0]]);
    const auto* const norm = std::get_if<tensor::BatchNormSpec>(&spec);
    return norm == nullptr ? ChannelMap{} : map_of(arrays_, layer.name, norm->epsilon);
  }

  // A residual is added behind the norm, and its activation comes after that.
  void find_fold(std::size_t norm) {
    const LayerSpec& layer = old_.model.layers[norm];
    const ValueId x = layer.inputs[0];
    if (x == 0 || readers_[x] != 1) return;
    ChannelMap map = map_of_norm(norm);
    if (map.factor.empty()) return;
    if (norm + 1 == old_.model.layers.size()) return;  // it gives the logits
    const bool adds = layer.inputs.size() == 2;
    const auto activation = adds ? tensor::Activation::none : layer.kind->traits().activation;
    folds_[x - 1] = old_.model.layers[x - 1].kind->with_bias(activation);
    if (folds_[x - 1]) norms_.push_back({x - 1, norm, std::move(map)});
  }

  [[nodiscard]] bool is_folded(std::size_t norm) const {
    return std::ranges::find(norms_, norm, &Fold::norm) != norms_.end();
  }

  // The last layer stays: it gives the logits.
  void add(std::size_t i, Model& model) {
    LayerSpec layer = old_.model.layers[i];
    for (ValueId& input : layer.inputs) input = value_[input];
    const bool last = i + 1 == old_.model.layers.size();
    const bool vanishes =
        layer.kind->traits().only_trains || (is_folded(i) && layer.inputs.size() == 1);
    if (vanishes && !last) {
      value_[i + 1] = layer.inputs[0];
      return;
    }
    // A folded norm with a residual becomes the sum alone.
    if (is_folded(i)) layer.kind = AddLayer{.activation = layer.kind->traits().activation};
    if (folds_[i]) layer.kind = *folds_[i];
    model.layers.push_back(std::move(layer));
    value_[i + 1] = model.layers.size();
  }

  void copy_arrays(TrainedModel& folded) const {
    const ParameterLayout layout = layout_of(folded.model);
    folded.parameters.resize(layout.parameter_count);
    folded.statistics.resize(layout.statistic_count);
    for (const Parameter& entry : layout.parameters) {
      std::ranges::copy(arrays_.learned(entry.name),
                        folded.parameters.begin() + static_cast<std::ptrdiff_t>(entry.offset));
    }
    for (const Parameter& entry : layout.statistics) {
      std::ranges::copy(arrays_.measured(entry.name),
                        folded.statistics.begin() + static_cast<std::ptrdiff_t>(entry.offset));
    }
    for (const Fold& fold : norms_) {
      scale(old_.model.layers[fold.convolution].name, fold.map, layout, folded.parameters);
    }
  }

  // A bias that the convolution had before is scaled, too.
  static void scale(const std::string& name, const ChannelMap& map, const ParameterLayout& layout,
                    std::span<float> parameters) {
    for (const Parameter& entry : layout.parameters) {
      if (entry.layer() != name) continue;
      const auto values = parameters.subspan(entry.offset, entry.size());
      const std::size_t row = values.size() / map.factor.size();
      // A filter is a row of the weights, and the bias has rows of one element.
      for (std::size_t i = 0; i < values.size(); ++i) values[i] *= map.factor[i / row];
      if (entry.shape.size() > 1) continue;
      for (std::size_t i = 0; i < values.size(); ++i) values[i] += map.shift[i];
    }
  }

  struct Fold {
    std::size_t convolution;  // the layer that takes over the batch norm
    std::size_t norm;
    ChannelMap map;  // of the batch norm
  };

  const TrainedModel& old_;
  Arrays arrays_;
  std::vector<tensor::Shape> shapes_;            // of every value
  std::vector<int> readers_;                     // of every value
  std::vector<std::optional<LayerKind>> folds_;  // of every layer that takes over a batch norm
  std::vector<Fold> norms_;
  std::vector<ValueId> value_;  // of every old value, the new one
};

}  // namespace

TrainedModel load_trained(const Model& model, const std::filesystem::path& file) {
  const ParameterLayout layout = layout_of(model);
  const SafetensorsFile source(file);
  // The file may have said how large the model is; so it is compared before memory is taken.
  expect_weights(source, layout);
  TrainedModel trained{.model = model,
                       .parameters = std::vector<float>(layout.parameter_count),
                       .statistics = std::vector<float>(layout.statistic_count)};
  load_weights(source, layout, trained.parameters, trained.statistics);
  return trained;
}

TrainedModel fold_batch_norms(const TrainedModel& trained) { return Folder(trained).fold(); }

class Predictor::Impl {
 public:
  Impl(tensor::Engine& engine, const TrainedModel& trained, std::int64_t most_images)
      : folded(fold_batch_norms(trained)),
        executor(engine, folded.model,
                 {.parameters = folded.parameters, .statistics = folded.statistics},
                 {.evaluation_batch = most_images}) {}

  TrainedModel folded;
  Executor executor;
};

Predictor::Predictor(tensor::Engine& engine, const TrainedModel& trained, std::int64_t most_images)
    : impl_(std::make_unique<Impl>(engine, trained, most_images)) {}

Predictor::~Predictor() = default;

const Model& Predictor::model() const noexcept { return impl_->folded.model; }

std::span<const float> Predictor::logits(std::span<const float> images, std::int64_t count) {
  return impl_->executor.infer(images, count);
}

std::vector<std::int64_t> Predictor::classes(std::span<const float> images, std::int64_t count) {
  const std::span<const float> all = logits(images, count);
  const auto width = static_cast<std::size_t>(model().classes);
  std::vector<std::int64_t> best;
  for (std::size_t first = 0; first < all.size(); first += width) {
    const auto row = all.subspan(first, width);
    best.push_back(std::ranges::max_element(row) - row.begin());
  }
  return best;
}

}  // namespace rondo::train
