// Values joined along their channels, as DenseNet's blocks do. Channels are innermost in memory, so
// that each pixel of the output is a row of pieces, one of each input, and backward cuts the rows
// of dy into the same pieces.
//
// On a grid a rank needs all channels of what it joins: where channels lie on several ranks they
// are gathered first (LayerTraits::joins_channels). Cuts of samples, rows and columns stay, but for
// tiles, which are cut by channel as well: of these each rank gets whole images.

#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>

#include <rondo/tensor/team.hpp>

#include "layers/layer_type.hpp"

namespace rondo::train {
namespace {

std::int64_t pixels_of(const tensor::Shape& shape) { return shape.n * shape.h * shape.w; }

class ConcatKernel final : public OneForwardKernel {
 public:
  explicit ConcatKernel(tensor::Engine& engine) : engine_(engine) {}

  void backward_parameters(const BackwardOperands& /*operands*/) override {}

  void backward_input(const BackwardOperands& operands) override {
    std::int64_t channel = 0;  // of y, where the input's begin
    for (const tensor::AnyView& dx : operands.input_gradients) {
      if (dx.data != nullptr) {
        tensor::with_type(dx.type, [&]<typename T>(T /*of*/) {
          cut<T>(operands.dy.as<T>(), channel, dx.as<T>());
        });
      }
      channel += dx.shape.c;
    }
  }

 private:
  void forward(const ForwardOperands& operands) override {
    std::int64_t channel = 0;
    for (const tensor::ConstAnyView& x : operands.inputs) {
      tensor::with_type(
          x.type, [&]<typename T>(T /*of*/) { join<T>(x.as<T>(), channel, operands.y.as<T>()); });
      channel += x.shape.c;
    }
  }

  template <typename T>
  void join(const tensor::View<const T>& x, std::int64_t channel, const tensor::View<T>& y) const {
    // A row of x lies densely, and goes to the input's place in the longer rows of y.
    const std::int64_t row = x.shape.c;
    const auto copy = [&](std::int64_t first, std::int64_t last) {
      for (std::int64_t pixel = first; pixel < last; ++pixel) {
        std::copy_n(x.data + pixel * row, row, y.data + pixel * y.shape.c + channel);
      }
    };
    tensor::for_each_share(engine_, pixels_of(y.shape), copy);
  }

  template <typename T>
  void cut(const tensor::View<const T>& dy, std::int64_t channel, const tensor::View<T>& dx) const {
    const std::int64_t row = dx.shape.c;
    const auto copy = [&](std::int64_t first, std::int64_t last) {
      for (std::int64_t pixel = first; pixel < last; ++pixel) {
        std::copy_n(dy.data + pixel * dy.shape.c + channel, row, dx.data + pixel * row);
      }
    };
    tensor::for_each_share(engine_, pixels_of(dy.shape), copy);
  }

  tensor::Engine& engine_;
};

class Concat final : public LayerType {
 public:
  std::string text() const override { return "concat"; }
  // Not in place: dy is longer than each gradient that is cut out of it.
  LayerTraits traits() const noexcept override {
    return {.joins_channels = true, .several_inputs = true, .any_type = true};
  }
  std::size_t inputs() const noexcept override { return 2; }

  // The output of one input alone; output_of() gives that of all inputs together.
  tensor::Shape output(const tensor::Shape& input) const override { return input; }

  tensor::Shape output_of(std::span<const tensor::Shape> inputs) const override {
    tensor::Shape joined = inputs[0];
    for (const tensor::Shape& next : inputs.subspan(1)) {
      if (next.h != joined.h || next.w != joined.w) {
        throw std::invalid_argument("cannot join " + size_text(next) + " to " +
                                    size_text(inputs[0]) +
                                    ": rows and columns must be equally many");
      }
      joined.c += next.c;
    }
    return joined;
  }

  std::unique_ptr<LayerKernel> kernel(tensor::Engine& engine, const tensor::Shape& /*input*/,
                                      bool /*input_gradient*/,
                                      KernelPurpose /*purpose*/) const override {
    return std::make_unique<ConcatKernel>(engine);
  }
};

}  // namespace

std::shared_ptr<const LayerType> make_layer_type(const ConcatLayer& /*layer*/) {
  return std::make_shared<Concat>();
}

DescribedKind describe_concat() {
  return {.name = "concat",
          .keys = {"with"},
          .required = {"with"},
          .make = [](const Experiment::Layer& /*layer*/) -> LayerKind { return ConcatLayer{}; }};
}

}  // namespace rondo::train
