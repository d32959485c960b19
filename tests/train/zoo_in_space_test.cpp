// Layers of the zoo at their own sizes of images, split in space: no kernel is oneDNN's reference
// one. Parts have unequal paddings and as little as one row.

#include <array>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <rondo/train/model.hpp>
#include <rondo/transport/world.hpp>

#include "support/world.hpp"
#include "train/support/split_layer.hpp"

namespace rondo::train::zoo_in_space_test {
namespace {

using testing::HasSubstr;
using testing::Not;

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
}  // namespace rondo::train::zoo_in_space_test
