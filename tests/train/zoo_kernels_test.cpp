// No layer of the zoo, at its own size of pictures, falls back to one of oneDNN's reference
// kernels, which are several hundred times slower. Kernels are made one by one and thrown away:
// that needs no activations, and every layer that occurs twice is made once.

#include <memory>
#include <set>
#include <string>
#include <variant>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <rondo/tensor/engine.hpp>
#include <rondo/train/model.hpp>

#include "executor/layer_kernel.hpp"

namespace rondo::train {
namespace {

using testing::HasSubstr;
using testing::Not;

std::string text(const tensor::Shape& shape) {
  return fmt::format("{}x{}x{}x{}", shape.n, shape.h, shape.w, shape.c);
}

/// Equal for layers that ask for the same kernels.
struct Wanted {
  std::string operator()(const ConvolutionLayer& layer) const {
    return fmt::format("convolution {} {} {} {} {} {}", layer.filters, layer.kernel, layer.stride,
                       layer.padding, layer.bias, static_cast<int>(layer.activation));
  }
  std::string operator()(const BatchNormLayer& layer) const {
    return fmt::format("batch norm {} {}", layer.residual, static_cast<int>(layer.activation));
  }
  std::string operator()(const PoolingLayer& layer) const {
    return fmt::format("pooling {} {} {} {}", static_cast<int>(layer.kind), layer.window,
                       layer.stride, layer.padding);
  }
  std::string operator()(const GlobalAveragePoolingLayer& /*layer*/) const { return "average"; }
  std::string operator()(const FullyConnectedLayer& layer) const {
    return fmt::format("connected {} {}", layer.outputs, static_cast<int>(layer.activation));
  }
};

class ZooKernelsTest : public testing::Test {
 protected:
  /// Counts what was made.
  void make_all(const Model& model, std::int64_t images) {
    const std::vector<tensor::Shape> shapes = shapes_of(model, images);
    for (const LayerSpec& layer : model.layers) {
      const tensor::Shape& input = shapes[layer.inputs[0]];
      const std::string wanted =
          fmt::format("{} of {}{}", std::visit(Wanted{}, layer.kind), text(input),
                      layer.inputs[0] == 0 ? ", the model's input" : "");
      if (!seen_.insert(wanted).second) continue;
      SCOPED_TRACE(model.name + ", layer " + layer.name + ": " + wanted);
      expect_fast(layer, input);
    }
  }

  [[nodiscard]] std::size_t made() const { return seen_.size(); }

 private:
  static void expect_fast(const LayerSpec& layer, const tensor::Shape& input) {
    tensor::Engine engine;
    std::unique_ptr<LayerKernel> kernel;
    ASSERT_NO_THROW(kernel = make_layer_kernel(engine, layer, input));
    const std::string names = kernel->implementation();

    EXPECT_THAT(names, Not(HasSubstr("ref")));
    const bool is_onednn = !std::holds_alternative<BatchNormLayer>(layer.kind);
    EXPECT_EQ(!names.empty(), is_onednn);
  }

  std::set<std::string> seen_;
};

TEST_F(ZooKernelsTest, AreNoReferenceKernels) {
  for (const std::string& name : model_names()) {
    const Model model = make_model(name);
    for (const std::int64_t images : {1, 2}) make_all(model, images);
  }

  EXPECT_GT(made(), 200U);
}

}  // namespace
}  // namespace rondo::train
