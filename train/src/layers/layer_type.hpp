#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <rondo/train/experiment.hpp>
#include <rondo/train/layer_kernel.hpp>
#include <rondo/train/layer_type.hpp>
#include <rondo/train/model.hpp>

#include "grid/exchange.hpp"
#include "grid/layout.hpp"

namespace rondo::train {

/// The kernel of `layer` for inputs of shape `input`. Without `input_gradient` one with weights is
/// never given a dx; for evaluation none is asked for any gradient. Throws std::invalid_argument
/// where the layer has no kernel for `type`.
[[nodiscard]] std::unique_ptr<LayerKernel> make_layer_kernel(
    tensor::Engine& engine, const LayerKind& layer, tensor::Shape input, bool input_gradient,
    KernelPurpose purpose = KernelPurpose::training, tensor::DataType type = tensor::DataType::f32);

/// A kind of layer as [[model.layers]] describes it.
struct DescribedKind {
  std::string_view name;
  std::vector<std::string_view> keys = {};      ///< that it has beside kind, name and from
  std::vector<std::string_view> required = {};  ///< of these
  LayerKind (*make)(const Experiment::Layer& description) = nullptr;
};

/// All kinds, in the order in which messages list them.
[[nodiscard]] std::span<const DescribedKind> described_kinds();

/// The kind of that name; null: there is none.
[[nodiscard]] const DescribedKind* find_kind(std::string_view name);

/// The value of key `activation`; `usual` where it is "auto".
[[nodiscard]] tensor::Activation activation_of(const Experiment::Layer& description,
                                               tensor::Activation usual);

/// "28x28x1", for messages.
[[nodiscard]] std::string size_text(const tensor::Shape& shape);

/// Throws std::invalid_argument unless windows and strides are positive, and fit into `input`.
void check_windows(const Windows& windows, const tensor::Shape& input);

[[nodiscard]] inline bool is_convolution(const LayerSpec& layer) {
  return layer.kind->traits().weights == Weights::filters;
}

[[nodiscard]] inline bool is_fully_connected(const LayerSpec& layer) {
  return layer.kind->traits().weights == Weights::outputs;
}

/// Such a layer is given a split on a grid; the others follow.
[[nodiscard]] inline bool has_weights(const LayerSpec& layer) {
  return layer.kind->traits().weights != Weights::none;
}

// The two rules by which values get their layouts, for planner and executor alike.

/// How a layer that is split so reads its input, which lies as `now`: as it lies, or in another
/// layout, to which it must be redistributed first.
[[nodiscard]] ValueLayout layout_read_by(const LayerSpec& layer, const LayerSplit& split,
                                         const ValueLayout& now);
/// How it leaves its output after reading `x`.
[[nodiscard]] ValueLayout layout_written_by(const LayerSpec& layer, const LayerSplit& split,
                                            const ValueLayout& x);

}  // namespace rondo::train
