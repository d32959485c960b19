// Kernels that the models of the zoo run on.

#include <fmt/format.h>

#include <array>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <rondo/tensor/engine.hpp>
#include <rondo/train/model.hpp>
#include <rondo/train/partition.hpp>
#include <rondo/transport/world.hpp>

#include "layers/layer_type.hpp"
#include "support/world.hpp"
#include "train/support/by_space.hpp"
#include "train/support/layers_on_grid.hpp"

namespace rondo::train::zoo_kernels_test {
namespace {

using testing::HasSubstr;
using testing::Not;

// No layer of the zoo, at its own size of images, falls back to one of oneDNN's reference
// kernels, which are several hundred times slower. Kernels are made one by one and thrown away:
// that needs no activations, and every layer that occurs twice is made once.

std::string text(const tensor::Shape& shape) {
  return fmt::format("{}x{}x{}x{}", shape.n, shape.h, shape.w, shape.c);
}

class ZooKernelsTest : public testing::Test {
 protected:
  /// Counts what was made.
  void make_all(const Model& model, std::int64_t images) {
    const std::vector<tensor::Shape> shapes = shapes_of(model, images);
    for (const LayerSpec& layer : model.layers) {
      const tensor::Shape& input = shapes[layer.inputs[0]];
      const std::string wanted = fmt::format("{} of {}{}", layer.kind->text(), text(input),
                                             layer.inputs[0] == 0 ? ", the model's input" : "");
      if (!seen_.insert(wanted).second) continue;
      SCOPED_TRACE(model.name + ", layer " + layer.name + ": " + wanted);
      expect_fast(layer, input);
    }
  }

  /// Makes the kernels that ranks run where the channels and filters of convolutions are cut into
  /// parts, and the outputs of fully connected layers.
  void make_parts(const Model& model, std::int64_t images, ChannelGrid grid) {
    const std::vector<tensor::Shape> shapes = shapes_of(model, images);
    for (const LayerSpec& whole : model.layers) {
      for (const int part : {0, 1}) {
        LayerSpec layer = whole;
        tensor::Shape input = shapes[layer.inputs[0]];
        if (!cut(layer.kind, input, grid, part)) continue;
        const std::string wanted = fmt::format("{} of {}", layer.kind->text(), text(input));
        if (!seen_.insert(wanted).second) continue;
        SCOPED_TRACE(model.name + ", part of layer " + layer.name + ": " + wanted);
        expect_fast(layer, input);
      }
    }
  }

  [[nodiscard]] std::size_t made() const { return seen_.size(); }

 private:
  /// Turns a layer and its input into one rank's part; false where [grid] leaves it whole.
  static bool cut(LayerKind& kind, tensor::Shape& input, ChannelGrid grid, int part) {
    if (const auto* whole = kind.get_if<ConvolutionLayer>()) {
      ConvolutionLayer layer = *whole;
      if (layer.groups > 1 || input.c < grid.ranks() || layer.filters < grid.ranks()) return false;
      layer.filters = even_range(layer.filters, grid.filters, part % grid.filters).size();
      input.c = even_range(input.c, grid.channels, part % grid.channels).size();
      kind = layer;
      const bool broken_on_avx2 = layer.kernel == 1 && layer.stride > 1 && input.c < 8;
      return !broken_on_avx2;  // there the tensor library refuses to make it
    }
    if (const auto* whole = kind.get_if<FullyConnectedLayer>()) {
      FullyConnectedLayer layer = *whole;
      layer.outputs = even_range(layer.outputs, grid.ranks(), part).size();
      kind = layer;
      return true;
    }
    return false;
  }

  static void expect_fast(const LayerSpec& layer, const tensor::Shape& input) {
    tensor::Engine engine;
    std::unique_ptr<LayerKernel> kernel;
    ASSERT_NO_THROW(kernel = make_layer_kernel(engine, layer.kind, input, layer.inputs[0] != 0));
    const std::string names = kernel->implementation();

    EXPECT_THAT(names, Not(HasSubstr("ref")));
    const bool is_onednn = !layer.kind->traits().batch_statistics &&
                           !std::holds_alternative<std::monostate>(layer.kind->spec(input));
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

TEST_F(ZooKernelsTest, NoPartOfALayerNeedsAReferenceKernel) {
  for (const std::string& name : model_names()) {
    for (const ChannelGrid grid :
         {ChannelGrid{2, 1}, {1, 2}, {2, 2}, {3, 1}, {1, 3}, {2, 3}, {8, 1}, {1, 8}}) {
      make_parts(make_model(name), 1, grid);
    }
  }
  EXPECT_GT(made(), 300U);
}

// Layers of the zoo at their own sizes of images, split in space: no kernel is oneDNN's reference
// one. Parts have unequal paddings and as little as one row.

struct Sized {
  LayerSpec layer;
  tensor::Shape x;
  tensor::Shape y;
};

/// The convolutions and poolings of all models, each kind and size once.
std::vector<Sized> layers(std::int64_t images) {
  std::vector<Sized> found;
  std::set<std::array<std::int64_t, 7>> seen;
  for (const std::string& name : model_names()) {
    const Model model = make_model(name);
    const std::vector<tensor::Shape> shapes = shapes_of(model, images);
    for (std::size_t i = 0; i < model.layers.size(); ++i) {
      const LayerSpec& layer = model.layers[i];
      const tensor::Shape& x = shapes[layer.inputs[0]];
      const tensor::Shape& y = shapes[i + 1];
      const auto* convolution = layer.kind.get_if<ConvolutionLayer>();
      if (convolution == nullptr && !(layer.kind.get_if<PoolingLayer>() != nullptr)) continue;
      const std::int64_t kernel = convolution != nullptr ? convolution->kernel : 0;
      const std::int64_t groups = convolution != nullptr ? convolution->groups : 1;
      if (seen.insert({x.h, x.c, y.h, y.c, kernel, groups, layer.inputs[0] == 0 ? 1 : 0}).second)
        found.push_back({layer, x, y});
    }
  }
  return found;
}

std::unique_ptr<LayerKernel> make(const KernelContext& context, const LayerSpec& layer,
                                  const NodeLayout& place) {
  if (const auto* convolution = layer.kind.get_if<ConvolutionLayer>()) {
    return make_convolution_in_space(context, *convolution, place, layer.inputs[0] != 0);
  }
  return make_pooling_in_space(context, (*layer.kind.get_if<PoolingLayer>()), place);
}

TEST(ZooInSpaceTest, RunsNoReferenceKernel) {
  const std::vector<Sized> all = layers(1);
  for (const auto& [h, w] : {std::pair(2, 1), {4, 1}, {1, 3}, {2, 2}}) {
    const ProcessGrid grid{.pr = h * w};
    rondo::test::World(grid.ranks()).run([&](transport::World& world) {
      test::GridRank rank(world, grid);
      for (const Sized& sized : all) {
        SCOPED_TRACE(sized.layer.name + ", rank " + std::to_string(world.rank()));
        const NodeLayout place{{.kind = SplitKind::space, .h = h, .w = w},
                               by_space(sized.x, grid, h, w),
                               by_space(sized.y, grid, h, w)};
        const auto kernel = make(rank.context, sized.layer, place);

        EXPECT_THAT(kernel->implementation(), Not(HasSubstr("ref")));
        EXPECT_FALSE(kernel->implementation().empty());
      }
    });
  }
  EXPECT_GT(all.size(), 60U);
}

}  // namespace
}  // namespace rondo::train::zoo_kernels_test
