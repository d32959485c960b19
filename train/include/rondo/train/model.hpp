#pragma once

#include <any>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <rondo/tensor/batch_norm.hpp>
#include <rondo/tensor/convolution.hpp>
#include <rondo/tensor/fully_connected.hpp>
#include <rondo/tensor/pooling.hpp>
#include <rondo/tensor/tensor.hpp>
#include <rondo/train/export.hpp>
#include <rondo/train/parameters.hpp>

namespace rondo::train {

// Layers as data: what a layer is, without memory or code. Shapes are for one image (n = 1).

/// A tensor of the graph: 0 is the model's input; layer i writes value i + 1.
using ValueId = std::size_t;

struct ConvolutionLayer {
  std::int64_t filters = 0;
  std::int64_t kernel = 3;
  std::int64_t stride = 1;
  std::int64_t padding = 1;
  std::int64_t groups = 1;  ///< divides channels and filters; as many as channels: depthwise
  bool bias = false;
  tensor::Activation activation = tensor::Activation::none;
  Initial initial = Initial::he_normal;  ///< of the weights; a bias is always uniform_fan_in
};

/// With `residual`: the layer's second input is added before the activation.
struct BatchNormLayer {
  tensor::Activation activation = tensor::Activation::relu;
  bool residual = false;
  float momentum = 0.1F;  ///< running = (1 - momentum) * running + momentum * batch
};

struct PoolingLayer {
  tensor::PoolingKind kind = tensor::PoolingKind::max;
  std::int64_t window = 2;
  std::int64_t stride = 2;
  std::int64_t padding = 0;
};

/// The mean of every channel.
struct GlobalAveragePoolingLayer {};

struct FullyConnectedLayer {
  std::int64_t outputs = 0;
  tensor::Activation activation = tensor::Activation::none;
};

/// The sum of two values or more, of one shape.
struct AddLayer {
  tensor::Activation activation = tensor::Activation::none;
};

/// The channels of two values or more, one behind the other; images are equally large.
struct ConcatLayer {};

/// In training each element is 0 with this probability, else divided by 1 - probability; in
/// evaluation nothing is done. Which elements depends on the run's seed, the step, the layer's name
/// and the element's place in the global batch alone, not on the number of ranks.
struct DropoutLayer {
  double probability = 0.5;
};

/// A function of every element: max(x, 0), or min(max(x, 0), 6).
enum class Function : std::uint8_t { relu, relu6 };

/// For what is no part of another layer; relu behind a convolution, batch norm or sum is cheaper as
/// their activation.
struct ActivationLayer {
  Function function = Function::relu;
};

/// The behaviour of a kind of layer, given its numbers; see layer_type.hpp.
class LayerType;

// One for every kind, found by the type of its numbers. Each stands with all else that a kind of
// layer is in one source, in the library's folder layers/, or beside one's own kind of layer.
[[nodiscard]] RONDO_TRAIN_API std::shared_ptr<const LayerType> make_layer_type(
    const ConvolutionLayer& layer);
[[nodiscard]] RONDO_TRAIN_API std::shared_ptr<const LayerType> make_layer_type(
    const BatchNormLayer& layer);
[[nodiscard]] RONDO_TRAIN_API std::shared_ptr<const LayerType> make_layer_type(
    const PoolingLayer& layer);
[[nodiscard]] RONDO_TRAIN_API std::shared_ptr<const LayerType> make_layer_type(
    const GlobalAveragePoolingLayer& layer);
[[nodiscard]] RONDO_TRAIN_API std::shared_ptr<const LayerType> make_layer_type(
    const FullyConnectedLayer& layer);
[[nodiscard]] RONDO_TRAIN_API std::shared_ptr<const LayerType> make_layer_type(
    const AddLayer& layer);
[[nodiscard]] RONDO_TRAIN_API std::shared_ptr<const LayerType> make_layer_type(
    const ConcatLayer& layer);
[[nodiscard]] RONDO_TRAIN_API std::shared_ptr<const LayerType> make_layer_type(
    const DropoutLayer& layer);
[[nodiscard]] RONDO_TRAIN_API std::shared_ptr<const LayerType> make_layer_type(
    const ActivationLayer& layer);

template <typename Layer>
concept AnyLayer = requires(const Layer& layer) {
  { make_layer_type(layer) } -> std::same_as<std::shared_ptr<const LayerType>>;
};

/// A layer of any kind: one of the structures above, or another for which there is a
/// make_layer_type(). A value; by itself a ConvolutionLayer.
class LayerKind {
 public:
  LayerKind() : LayerKind(ConvolutionLayer{}) {}
  // NOLINTNEXTLINE(google-explicit-constructor): a layer is what a model lists
  LayerKind(AnyLayer auto layer) : type_(make_layer_type(layer)), layer_(std::move(layer)) {}

  /// The layer's numbers, if it is of that kind; else null.
  template <AnyLayer Layer>
  [[nodiscard]] const Layer* get_if() const noexcept {
    return std::any_cast<Layer>(&layer_);
  }

  [[nodiscard]] const LayerType& operator*() const noexcept { return *type_; }
  [[nodiscard]] const LayerType* operator->() const noexcept { return type_.get(); }

 private:
  std::shared_ptr<const LayerType> type_;
  std::any layer_;
};

struct LayerSpec {
  std::string name = {};  ///< as in torchvision's state_dict, for example "layer1.0.conv1"
  LayerKind kind = {};
  std::vector<ValueId> inputs = {};
};

/// A network of layers in an order in which they can run; its last layer gives the logits.
struct Model {
  std::string name = {};
  tensor::Shape input = {};  ///< of one image
  std::int64_t classes = 0;
  std::vector<LayerSpec> layers = {};
};

/// Writes a Model layer by layer; add() returns the value that the new layer writes.
class ModelBuilder {
 public:
  static constexpr ValueId input = 0;

  ModelBuilder(std::string name, tensor::Shape shape, std::int64_t classes)
      : model_{.name = std::move(name), .input = shape.with_n(1), .classes = classes} {}

  ValueId add(std::string name, LayerKind kind, ValueId x) {
    return append(std::move(name), std::move(kind), {x});
  }
  /// Adds a layer with a residual, or of two inputs.
  ValueId add(std::string name, LayerKind kind, ValueId x, ValueId second) {
    return append(std::move(name), std::move(kind), {x, second});
  }
  /// Adds a layer of any number of inputs.
  ValueId add(std::string name, LayerKind kind, std::vector<ValueId> inputs) {
    return append(std::move(name), std::move(kind), std::move(inputs));
  }

  Model finish() { return std::move(model_); }

 private:
  ValueId append(std::string name, LayerKind kind, std::vector<ValueId> inputs) {
    model_.layers.push_back(
        {.name = std::move(name), .kind = std::move(kind), .inputs = std::move(inputs)});
    return model_.layers.size();
  }

  Model model_;
};

/// The shape of every value for batches of `n`; throws std::invalid_argument that names the
/// layer whose input does not fit.
[[nodiscard]] RONDO_TRAIN_API std::vector<tensor::Shape> shapes_of(const Model& model,
                                                                   std::int64_t n);

/// Names, kinds and inputs of all layers, a line for each: equal for models that compute alike.
[[nodiscard]] RONDO_TRAIN_API std::string description_of(const Model& model);

/// Names, shapes and places of all that the model learns. Throws std::invalid_argument, too, where
/// two layers have one name, or a parameter's name has a dot.
[[nodiscard]] RONDO_TRAIN_API ParameterLayout layout_of(const Model& model);

/// The model of that name for images of `input` (n is ignored; {} means the model's own default)
/// and `classes` (0: its default). Throws std::invalid_argument that lists the names when there is
/// none.
///
/// - lenet5: 28x28x1, 10 classes
/// - resnet8, resnet20, resnet32, resnet56, resnet110, preact_resnet20, preact_resnet56,
///   preact_resnet110, densenet40_12 (CIFAR): 32x32x3, 10 classes
/// - alexnet, vgg11, vgg11_bn, vgg16, vgg16_bn, resnet18, resnet34, resnet50, wide_resnet50_2,
///   densenet121, mobilenet_v2: 224x224x3, 1,000 classes, with torchvision's parameters and
///   dropout; alexnet-2012: 227x227x3, without dropout
///
/// AlexNet and VGG have no adaptive pooling, which changes nothing at their own size of images; at
/// others their first fully connected layer takes what there is.
[[nodiscard]] RONDO_TRAIN_API Model make_model(std::string_view name, tensor::Shape input = {},
                                               std::int64_t classes = 0);

/// A model that make_model() knows by name.
struct ModelEntry {
  std::string_view name = {};
  tensor::Shape input = {};  ///< its default, as that of the classes
  std::int64_t classes = 0;
  Model (*make)(tensor::Shape input, std::int64_t classes) = nullptr;
};

/// The same for a model of one's own.
[[nodiscard]] RONDO_TRAIN_API Model make_model(const ModelEntry& entry, tensor::Shape input = {},
                                               std::int64_t classes = 0);

/// The names that make_model() knows.
[[nodiscard]] RONDO_TRAIN_API std::vector<std::string> model_names();

/// Draws elements [first, first + values.size()) of `parameter`. Each element is a function of
/// (seed, the parameter's name, its index) alone, so any part can be drawn by anybody.
RONDO_TRAIN_API void draw_initial(const Parameter& parameter, std::uint64_t seed, std::size_t first,
                                  std::span<float> values);

/// Draws the initial parameters, keyed by (seed, name, element) with a counter-based generator:
/// the same for any number of ranks and threads, and for any part of the array. Running means
/// begin at 0, running variances at 1.
RONDO_TRAIN_API void initialize(const ParameterLayout& layout, std::uint64_t seed,
                                std::span<float> parameters, std::span<float> statistics);

}  // namespace rondo::train
