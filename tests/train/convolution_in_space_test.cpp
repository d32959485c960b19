// Convolutions split over samples and space give what the unsplit one does.

#include <string>
#include <tuple>
#include <vector>

#include <gtest/gtest.h>

#include <rondo/tensor/engine.hpp>
#include <rondo/transport/world.hpp>

#include "support/world.hpp"
#include "train/support/split_layer.hpp"

namespace rondo::train {
namespace {

using rondo::test::World;
using test::Numbers;

struct Grid {
  ProcessGrid process = {};
  LayerSplit split = {};
};

constexpr LayerSplit space(int h, int w) { return {.kind = SplitKind::space, .h = h, .w = w}; }

/// One World for each grid, all layers in it.
class ConvolutionInSpaceTest : public testing::TestWithParam<Grid> {
 protected:
  static void expect_agreement(const ConvolutionLayer& layer, tensor::Shape x, Numbers numbers) {
    tensor::Engine engine;
    const test::WholeLayer whole = test::run_whole(engine, layer, x, numbers);
    const auto& [process, split] = GetParam();
    World(process.ranks()).run([&](transport::World& world) {
      test::GridRank rank(world, process);
      const GridLayer place = test::place_on(process, split, whole);
      const auto kernel = make_convolution_in_space(rank.context, layer, place, true);
      test::SplitLayer part = test::run_split(rank.context, *kernel, place, whole);
      test::sum_gradients(rank.context, place, part.gradients);
      test::expect_parts_of(whole, part, numbers);
    });
  }
};

TEST_P(ConvolutionInSpaceTest, GivesTheBitsOfTheUnsplitOneOnWholeNumbers) {
  for (const std::int64_t n : {1, 3}) {
    for (const std::int64_t kernel : {1, 3, 5, 7}) {
      for (const std::int64_t stride : {1, 2}) {
        for (const std::int64_t padding : {std::int64_t{0}, (kernel - 1) / 2}) {
          SCOPED_TRACE("n " + std::to_string(n) + " k " + std::to_string(kernel) + " stride " +
                       std::to_string(stride) + " padding " + std::to_string(padding));
          expect_agreement({.filters = 16,
                            .kernel = kernel,
                            .stride = stride,
                            .padding = padding,
                            .bias = true,
                            .activation = tensor::Activation::relu},
                           {n, 13, 9, 8}, Numbers::whole);
        }
      }
    }
  }
}

std::string name_of(const testing::TestParamInfo<Grid>& info) {
  const LayerSplit& split = info.param.split;
  return std::to_string(split.h) + "x" + std::to_string(split.w) + "In" +
         std::to_string(info.param.process.pc) + "Groups";
}

INSTANTIATE_TEST_SUITE_P(Grids, ConvolutionInSpaceTest,
                         testing::Values(Grid{{.pr = 2}, space(2, 1)}, Grid{{.pr = 2}, space(1, 2)},
                                         Grid{{.pr = 4}, space(4, 1)}),
                         name_of);

}  // namespace
}  // namespace rondo::train
