// A fully connected layer: each output is a sum over the whole image.
//
// On a grid it is split over samples, or over its outputs by the 1.5D algorithm (Gholami, Azad,
// Jin, Keutzer, Buluc, "Integrated Model, Batch, and Domain Parallelism in Training Neural
// Networks", SPAA 2018). The ranks of a replica then hold the same samples, and each a range of the
// outputs with its weights and bias:
//
// - forward: the own outputs, activation included, then an allgather of y over the replica;
// - backward_parameters: the own columns of dy, masked, give the own weights' gradients;
// - backward_input: partial sums of dx, then an allreduce of dx over the replica, in fp32 even
//   where activations are bf16: so dx is rounded once.

#include <algorithm>
#include <cstddef>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>

#include <fmt/format.h>

#include <rondo/tensor/elementwise.hpp>
#include <rondo/tensor/fully_connected.hpp>
#include <rondo/tensor/tensor.hpp>

#include "grid/exchange.hpp"
#include "layers/kernel_memories.hpp"
#include "layers/split_kernels.hpp"
#include "layers/weighted_kernel.hpp"

namespace rondo::train {
namespace {

tensor::FullyConnectedSpec spec_of(const FullyConnectedLayer& layer, const tensor::Shape& input) {
  return {.input = input, .outputs = layer.outputs, .activation = layer.activation};
}

void require_fit(const NodeLayout& layout, ProcessGrid grid) {
  if (layout.x == by_replica(layout.x.extents(), grid) &&
      layout.y == by_replica(layout.y.extents(), grid)) {
    return;
  }

  throw std::invalid_argument(
      "fully connected by output: all ranks of a replica must hold the same input and output");
}

/// The 1.5D algorithm. A rank without outputs adds zeros and communicates as the others.
class ConnectedByOutput final : public OneForwardKernel {
 public:
  ConnectedByOutput(const KernelContext& context, const FullyConnectedLayer& layer,
                    const NodeLayout& layout, bool input_gradient)
      : engine_(context.engine),
        replica_(context.communicators.replica()),
        activation_(layer.activation),
        input_gradient_(input_gradient),
        outputs_(replica_, shares(layer.outputs, replica_.size(), 0, replica_.size())) {
    require_fit(layout, context.communicators.grid());
    const Range own = even_range(layer.outputs, replica_.size(), replica_.rank());
    const tensor::Shape input = layout.x.box_of(context.communicators.rank()).shape();
    // A rank beyond the number of outputs holds none, but it takes part in both exchanges.
    first_output_ = own.first;
    own_outputs_ = tensor::AnyTensor({input.n, 1, 1, own.size()}, context.type, context.memory);
    if (context.type != tensor::DataType::f32 && input_gradient) {
      sums_ = tensor::Tensor(input, context.memory);
    }
    if (own.empty()) return;
    tensor::FullyConnectedSpec spec = spec_of(layer, input);
    spec.outputs = own.size();
    spec.type = context.type;
    spec.f32_input_gradient = true;  // a part of a sum, which is rounded once
    if (!input_gradient) spec.input_gradient = tensor::InputGradient::unused;
    if (!context.trains()) spec.weight_gradient = tensor::WeightGradient::unused;
    connected_.emplace(context.engine, spec);
    weights_ = static_cast<std::size_t>(spec.weights());
  }

  void load(std::span<const float> parameters) override {
    if (connected_) connected_->pack_weights(parameters.first(weights_));
  }

  void backward_parameters(const BackwardOperands& operands) override {
    tensor::with_type(operands.dy.type, [&]<typename T>(T /*of*/) {
      take_own<T>(operands.y.as<T>(), operands.dy.as<T>());
    });
    if (!connected_) return;
    connected_->backward_weights(operands.x, own_outputs_.view(),
                                 operands.gradients.subspan(weights_));
    connected_->unpack_gradients(operands.gradients.first(weights_));
  }

  void backward_input(const BackwardOperands& operands) override {
    if (!input_gradient_) return;
    const bool narrow = operands.dx.type != tensor::DataType::f32;
    const tensor::View<float> sums = narrow ? sums_.view() : operands.dx.as<float>();
    if (connected_) {
      connected_->backward_data(own_outputs_.view(), sums);
    } else {
      clear(sums);
    }
    // Each rank has what its own outputs contribute to dx; x has the same layout as dx, on all
    // ranks.
    if (replica_.size() > 1) {
      replica_.allreduce(std::span(sums.data, static_cast<std::size_t>(sums.shape.size()))).wait();
    }
    if (narrow) tensor::convert(engine_, sums, operands.dx);
  }

  [[nodiscard]] std::string implementation() const override {
    return connected_ ? connected_->implementation() : "none (no outputs)";
  }

 private:
  void forward(const ForwardOperands& operands) override {
    if (connected_) {
      connected_->forward(operands.x, operands.parameters.subspan(weights_), own_outputs_.view());
    }
    outputs_.allgather(own_outputs_.view(), operands.y).wait();
  }

  /// Own columns of dy into own_outputs_.
  template <typename T>
  void take_own(const tensor::View<const T>& y, const tensor::View<const T>& dy) {
    const tensor::Shape& own = own_outputs_.shape();
    for (std::int64_t n = 0; n < own.n; ++n) {
      const T* from = dy.image(n) + first_output_;
      T* into = static_cast<T*>(own_outputs_.data()) + n * own.c;
      if (activation_ == tensor::Activation::none) {
        std::copy_n(from, own.c, into);
      } else {
        std::transform(
            from, from + own.c, y.image(n) + first_output_, into,
            [](T gradient, T output) { return tensor::to_float(output) <= 0.0F ? T() : gradient; });
      }
    }
  }

  tensor::Engine& engine_;
  transport::Communicator& replica_;
  tensor::Activation activation_;
  bool input_gradient_;
  std::int64_t first_output_ = 0;
  std::size_t weights_ = 0;
  ChannelExchange outputs_;
  std::optional<tensor::FullyConnected> connected_;
  tensor::AnyTensor own_outputs_;  ///< of y, then of dy
  tensor::Tensor sums_;            ///< of dx; none where that is fp32
};

// The layer, as the rest of the library sees it.
class FullyConnected final : public LayerType {
 public:
  explicit FullyConnected(const FullyConnectedLayer& layer) : layer_(layer) {}

  std::string text() const override {
    return fmt::format("connected {} act{}", layer_.outputs, static_cast<int>(layer_.activation));
  }

  LayerTraits traits() const noexcept override { return {.weights = Weights::outputs}; }

  tensor::Shape output(const tensor::Shape& input) const override {
    if (layer_.outputs < 1) throw std::invalid_argument("needs at least one output");
    return spec_of(layer_, input).output();
  }

  LayerParameters parameters(const tensor::Shape& input) const override {
    return weight_and_bias({.name = "weight",
                            .shape = {layer_.outputs, input.image()},
                            .initial = Initial::uniform_fan_in,
                            .fan_in = input.image(),
                            .fan_out = layer_.outputs},
                           true);
  }

  KernelSpec spec(const tensor::Shape& input) const override { return spec_of(layer_, input); }

  std::unique_ptr<LayerKernel> kernel(tensor::Engine& engine, const tensor::Shape& input,
                                      bool input_gradient, KernelPurpose purpose) const override {
    return make_weighted_kernel<tensor::FullyConnected>(engine, spec_of(layer_, input),
                                                        input_gradient, purpose);
  }

  std::unique_ptr<LayerKernel> bf16_kernel(tensor::Engine& engine, const tensor::Shape& input,
                                           bool input_gradient,
                                           KernelPurpose purpose) const override {
    return make_weighted_kernel<tensor::FullyConnected>(
        engine, spec_of(layer_, input), input_gradient, purpose, tensor::DataType::bf16);
  }

  std::unique_ptr<LayerKernel> grid_kernel(const KernelContext& context, const NodeLayout& layout,
                                           bool input_gradient) const override {
    if (!layout.by_channel()) return LayerType::grid_kernel(context, layout, input_gradient);
    return make_connected_by_output(context, layer_, layout, input_gradient);
  }

  ParameterSlice slice(const NodeLayout& layout, int rank) const override {
    const Range outputs = layout.by_channel() ? even_range(layer_.outputs, layout.x.ranks(), rank)
                                              : Range{0, layout.y.extents().c};
    return {.rows = outputs, .columns = {0, layout.x.extents().image()}, .elements = outputs};
  }

  LayerTraffic traffic(const NodeLayout& layout, bool input_gradient) const override {
    if (!layout.by_channel()) return {};
    const auto others = static_cast<std::uint64_t>(layout.x.ranks() - 1);
    const auto all = [](const Partition& value) {
      return static_cast<std::uint64_t>(value.extents().size());
    };
    // Forward: every rank sends its part of y to all others. Backward: an allreduce of dx sends
    // each element twice from all ranks but one, as reduce-scatter and allgather.
    const std::uint64_t sums = input_gradient ? 2 * others * all(layout.x) : 0;
    return {.forward = others * all(layout.y), .backward = sums, .sums = sums};
  }

  tensor::KernelMemory memory(const PlannedKernel& kernel) const override {
    const NodeLayout& layout = kernel.layout;
    tensor::FullyConnectedSpec spec = spec_of(layer_, layout.x.box_of(kernel.rank).shape());
    spec.type = kernel.type;
    if (!kernel.input_gradient) spec.input_gradient = tensor::InputGradient::unused;
    if (!layout.by_channel()) return kernel.kernels.of(spec);
    spec.outputs = even_range(layer_.outputs, layout.x.ranks(), kernel.rank).size();
    const bool narrow = kernel.type != tensor::DataType::f32 && kernel.input_gradient;
    const std::size_t sums = narrow ? float_bytes(spec.input.size()) : 0;
    if (spec.outputs == 0) return {.own = sums};
    spec.f32_input_gradient = true;
    tensor::KernelMemory memory = kernel.kernels.of(spec);
    memory.own += bytes_of(spec.input.n * spec.outputs, kernel.type) + sums;
    return memory;
  }

  std::optional<LayerKind> part_by_channel(ChannelGrid /*grid*/, int ranks,
                                           tensor::Shape& /*input*/) const override {
    FullyConnectedLayer part = layer_;
    part.outputs = largest_part(part.outputs, ranks);
    return part;
  }

 private:
  FullyConnectedLayer layer_;
};

}  // namespace

std::unique_ptr<LayerKernel> make_connected_by_output(const KernelContext& context,
                                                      const FullyConnectedLayer& layer,
                                                      const NodeLayout& layout,
                                                      bool input_gradient) {
  return std::make_unique<ConnectedByOutput>(context, layer, layout, input_gradient);
}

std::shared_ptr<const LayerType> make_layer_type(const FullyConnectedLayer& layer) {
  return std::make_shared<FullyConnected>(layer);
}

DescribedKind describe_fully_connected() {
  return {.name = "fully_connected",
          .keys = {"outputs", "activation"},
          .required = {"outputs"},
          .make = [](const Experiment::Layer& layer) -> LayerKind {
            return FullyConnectedLayer{
                .outputs = layer.outputs,
                .activation = activation_of(layer, tensor::Activation::none)};
          }};
}

}  // namespace rondo::train
