// Convolutions: the layer and its kernel where nothing is split. On a grid it is split over
// samples, over rows and columns (convolution_in_space.cpp), or over channels and filters and
// perhaps rows and columns (convolution_by_channel.cpp).

#include <cstdint>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>

#include <fmt/format.h>

#include <rondo/tensor/convolution.hpp>
#include <rondo/train/partition.hpp>

#include "layers/kernel_memories.hpp"
#include "layers/split_kernels.hpp"
#include "layers/weighted_kernel.hpp"

namespace rondo::train {
namespace {

std::uint64_t elements(const Box& box) { return static_cast<std::uint64_t>(box.size()); }

// Halos: of x before forward, of dy before backward-data.
LayerTraffic traffic_in_space(const Partition& x, const Partition& y, const Windows& windows,
                              bool input_gradient) {
  return {elements_sent(x, forward_needs(x, y, windows)),
          input_gradient ? elements_sent(y, backward_needs(x, y, windows)) : 0};
}

// The channels of x are gathered before the convolution, the sums of y are scattered after it.
LayerTraffic traffic_by_channel(const NodeLayout& layout, bool input_gradient) {
  const ChannelGrid grid = layout.split.channels;
  LayerTraffic traffic;
  for (int rank = 0; rank < layout.x.ranks(); ++rank) {
    const std::uint64_t x = elements(layout.x.box_of(rank));
    const std::uint64_t y = elements(layout.y.box_of(rank));
    // Words are counted where they are sent, on each rank, and summed over the ranks of the
    // replica.
    const std::uint64_t gathered = elements(gathered_input(layout.x, grid, rank));
    const std::uint64_t partial =
        elements(partial_output(layout.x, grid, layout.y.extents(), rank));
    // An allgather sends x to the others that share its channels; a reduce-scatter sends all
    // partial sums but the own ones. Backward has the same two, the opposite way.
    traffic.forward += x * static_cast<std::uint64_t>(grid.filters - 1) + (partial - y);
    traffic.sums += partial - y;
    traffic.backward += y * static_cast<std::uint64_t>(grid.channels - 1);
    if (!input_gradient) continue;
    traffic.backward += gathered - x;
    traffic.sums += gathered - x;
  }

  return traffic;
}

// The layer, as the rest of the library sees it.
class Convolution final : public LayerType {
 public:
  explicit Convolution(const ConvolutionLayer& layer) : layer_(layer) {}

  std::string text() const override {
    const std::string text = fmt::format("convolution {} k{} s{} p{} bias{} act{}", layer_.filters,
                                         layer_.kernel, layer_.stride, layer_.padding,
                                         layer_.bias ? 1 : 0, static_cast<int>(layer_.activation));
    return layer_.groups == 1 ? text : text + fmt::format(" g{}", layer_.groups);
  }

  LayerTraits traits() const noexcept override {
    return {.weights = Weights::filters, .whole_channels = layer_.groups > 1};
  }

  tensor::Shape output(const tensor::Shape& input) const override {
    if (layer_.filters < 1) throw std::invalid_argument("needs at least one filter");
    const std::int64_t groups = layer_.groups;
    if (groups < 1 || input.c % groups != 0 || layer_.filters % groups != 0) {
      throw std::invalid_argument(fmt::format("{} groups do not divide {} channels and {} filters",
                                              groups, input.c, layer_.filters));
    }
    check_windows(windows_of(layer_), input);
    return spec_of(layer_, input).output();
  }

  std::optional<Windows> windows() const noexcept override { return windows_of(layer_); }

  LayerParameters parameters(const tensor::Shape& input) const override {
    const std::int64_t window = layer_.kernel * layer_.kernel;
    const std::int64_t channels = input.c / layer_.groups;
    return weight_and_bias({.name = "weight",
                            .shape = {layer_.filters, channels, layer_.kernel, layer_.kernel},
                            .initial = layer_.initial,
                            .fan_in = channels * window,
                            .fan_out = layer_.filters * window},
                           layer_.bias);
  }

  KernelSpec spec(const tensor::Shape& input) const override { return spec_of(layer_, input); }

  std::unique_ptr<LayerKernel> kernel(tensor::Engine& engine, const tensor::Shape& input,
                                      bool input_gradient, KernelPurpose purpose) const override {
    return make_weighted_kernel<tensor::Convolution>(engine, spec_of(layer_, input), input_gradient,
                                                     purpose);
  }

  std::unique_ptr<LayerKernel> bf16_kernel(tensor::Engine& engine, const tensor::Shape& input,
                                           bool input_gradient,
                                           KernelPurpose purpose) const override {
    return make_weighted_kernel<tensor::Convolution>(engine, spec_of(layer_, input), input_gradient,
                                                     purpose, tensor::DataType::bf16);
  }

  std::unique_ptr<LayerKernel> grid_kernel(const KernelContext& context, const NodeLayout& layout,
                                           bool input_gradient) const override {
    return layout.by_channel()
               ? make_convolution_by_channel(context, layer_, layout, input_gradient)
               : make_convolution_in_space(context, layer_, layout, input_gradient);
  }

  ParameterSlice slice(const NodeLayout& layout, int rank) const override {
    // Not split by channel: the rank holds all weights.
    if (!layout.by_channel()) {
      const Range filters = layout.y.box_of(rank).c;
      const std::int64_t channels = layout.x.box_of(rank).c.size() / layer_.groups;
      return {.rows = filters, .columns = {0, channels}, .elements = filters};
    }
    const ChannelGrid grid = layout.split.channels;
    return {.rows = partial_output(layout.x, grid, layout.y.extents(), rank).c,
            .columns = gathered_input(layout.x, grid, rank).c,
            .elements = layout.y.box_of(rank).c};
  }

  LayerTraffic traffic(const NodeLayout& layout, bool input_gradient) const override {
    const Windows windows = windows_of(layer_);
    if (!layout.by_channel()) {
      return traffic_in_space(layout.x, layout.y, windows, input_gradient);
    }
    LayerTraffic traffic = traffic_by_channel(layout, input_gradient);
    if (!layout.in_space()) return traffic;
    // Ranks exchange halos of the gathered parts.
    const ChannelGrid grid = layout.split.channels;
    const LayerTraffic halos = traffic_in_space(
        gathered_inputs(layout.x, grid), gathered_outputs(layout.x, grid, layout.y.extents()),
        windows, input_gradient);
    traffic.forward += halos.forward;
    traffic.backward += halos.backward;
    return traffic;
  }

  tensor::KernelMemory memory(const PlannedKernel& kernel) const override {
    if (kernel.layout.by_channel()) return memory_by_channel(layer_, kernel);
    if (kernel.layout.split.kind == SplitKind::space) return memory_in_space(layer_, kernel);
    tensor::ConvolutionSpec whole = spec_of(layer_, kernel.layout.x.box_of(kernel.rank).shape());
    whole.type = kernel.type;
    if (!kernel.input_gradient) whole.input_gradient = tensor::InputGradient::unused;
    return kernel.kernels.of(whole);
  }

  std::optional<LayerKind> with_bias(tensor::Activation activation) const override {
    // An activation between the convolution and the batch norm forbids to merge the two.
    if (layer_.activation != tensor::Activation::none) return std::nullopt;
    ConvolutionLayer layer = layer_;
    layer.bias = true;
    layer.activation = activation;
    return layer;
  }

  std::optional<LayerKind> part_by_channel(ChannelGrid grid, int /*ranks*/,
                                           tensor::Shape& input) const override {
    input.c = largest_part(input.c, grid.channels);
    ConvolutionLayer part = layer_;
    part.filters = largest_part(part.filters, grid.filters);
    return part;
  }

 private:
  ConvolutionLayer layer_;
};

}  // namespace

tensor::ConvolutionSpec spec_of(const ConvolutionLayer& layer, tensor::Shape input) {
  return {.input = input,
          .filters = layer.filters,
          .kernel_h = layer.kernel,
          .kernel_w = layer.kernel,
          .stride = layer.stride,
          .pad_top = layer.padding,
          .pad_bottom = layer.padding,
          .pad_left = layer.padding,
          .pad_right = layer.padding,
          .bias = layer.bias,
          .activation = layer.activation,
          .groups = layer.groups};
}

// Kernels, strides and paddings are square.
Windows windows_of(const ConvolutionLayer& layer) noexcept {
  const Window window{.kernel = layer.kernel,
                      .stride = layer.stride,
                      .before = layer.padding,
                      .after = layer.padding};
  return {window, window};
}

std::shared_ptr<const LayerType> make_layer_type(const ConvolutionLayer& layer) {
  return std::make_shared<Convolution>(layer);
}

DescribedKind describe_convolution() {
  return {
      .name = "convolution",
      .keys = {"filters", "kernel", "stride", "padding", "groups", "bias", "activation", "initial"},
      .required = {"filters"},
      .make = [](const Experiment::Layer& layer) -> LayerKind {
        return ConvolutionLayer{.filters = layer.filters,
                                .kernel = layer.kernel,
                                .stride = layer.stride == 0 ? 1 : layer.stride,
                                .padding = layer.padding < 0 ? layer.kernel / 2 : layer.padding,
                                .groups = layer.groups,
                                .bias = layer.bias,
                                .activation = activation_of(layer, tensor::Activation::none),
                                .initial = layer.initial == "uniform_fan_in"
                                               ? Initial::uniform_fan_in
                                               : Initial::he_normal};
      }};
}

}  // namespace rondo::train
