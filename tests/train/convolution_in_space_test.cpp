// Convolutions split over samples, groups and space give what the unsplit one does.

#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <rondo/tensor/engine.hpp>
#include <rondo/transport/world.hpp>

#include "support/world.hpp"
#include "train/support/split_layer.hpp"

namespace rondo::train::convolution_in_space_test {
namespace {

using rondo::test::World;
using test::Numbers;

struct Grid {
  ProcessGrid process = {};
  LayerSplit split = {};
};

Grid space(int h, int w, int groups = 1) {
  return {{.pr = h * w, .pc = groups}, {.kind = SplitKind::space, .h = h, .w = w}};
}

struct Case {
  std::string name;
  ConvolutionLayer layer;
  tensor::Shape x;
};

/// A case of its own for every kernel, stride and padding.
std::vector<Case> squares(tensor::Shape x, std::int64_t filters) {
  std::vector<Case> cases;
  for (const std::int64_t kernel : {1, 3, 5, 7}) {
    for (const std::int64_t stride : {1, 2}) {
      for (const std::int64_t padding : {std::int64_t{0}, (kernel - 1) / 2}) {
        if (padding == 0 && kernel == 1 && stride == 1 && x.n > 1) continue;
        cases.push_back(
            {"n " + std::to_string(x.n) + " c " + std::to_string(x.c) + " k " +
                 std::to_string(kernel) + " stride " + std::to_string(stride) + " padding " +
                 std::to_string(padding),
             {.filters = filters, .kernel = kernel, .stride = stride, .padding = padding},
             x});
        if (kernel == 1) break;
      }
    }
  }
  return cases;
}

/// What other layers of networks add: a bias and an activation, images in colour, and channels
/// enough for the kernels of large layers.
std::vector<Case> others() {
  const auto relu = tensor::Activation::relu;
  return {
      {"first of ResNet", {.filters = 16, .kernel = 7, .stride = 2, .padding = 3}, {3, 14, 14, 3}},
      {"bias", {.filters = 16, .bias = true}, {3, 9, 8, 8}},
      {"bias and relu",
       {.filters = 24, .kernel = 5, .padding = 2, .bias = true, .activation = relu},
       {1, 13, 7, 16}},
      {"relu", {.filters = 8, .stride = 2, .activation = relu}, {3, 9, 13, 16}},
      {"more channels", {.filters = 32}, {1, 16, 12, 32}},
      {"even", {.filters = 16, .kernel = 1, .stride = 2, .padding = 0}, {2, 12, 12, 16}},
      {"large", {.filters = 8, .kernel = 5, .padding = 2, .bias = true}, {1, 23, 24, 8}},
      {"large, stride 2", {.filters = 8, .kernel = 7, .stride = 2, .padding = 3}, {1, 30, 28, 8}},
      {"large, no padding", {.filters = 8, .padding = 0, .activation = relu}, {1, 21, 16, 8}},
      {"few rows", {.filters = 16}, {2, 3, 3, 16}},
  };
}

class ConvolutionInSpaceTest : public testing::TestWithParam<Grid> {
 protected:
  /// All cases in one World.
  static void expect_agreement(const std::vector<Case>& cases, Numbers numbers) {
    tensor::Engine engine;
    std::vector<test::WholeLayer> wholes;
    for (const Case& one : cases) {
      wholes.push_back(test::run_whole(engine, one.layer, one.x, numbers));
    }
    const auto& [process, split] = GetParam();
    World(process.ranks()).run([&](transport::World& world) {
      test::GridRank rank(world, process);
      for (std::size_t i = 0; i < cases.size(); ++i) {
        SCOPED_TRACE(cases[i].name + ", rank " + std::to_string(world.rank()));
        const NodeLayout place = test::place_on(process, split, wholes[i]);
        const auto kernel = make_convolution_in_space(rank.context, cases[i].layer, place, true);
        test::SplitLayer part = test::run_split(rank.context, *kernel, place, wholes[i]);
        test::sum_gradients(rank.context, place, part.gradients);
        test::expect_parts_of(wholes[i], part, numbers);
      }
    });
  }
};

TEST_P(ConvolutionInSpaceTest, GivesTheBitsOfTheUnsplitOneOnWholeNumbers) {
  expect_agreement(squares({1, 13, 9, 8}, 16), Numbers::whole);
  expect_agreement(squares({3, 9, 7, 16}, 8), Numbers::whole);
  expect_agreement(others(), Numbers::whole);
}

TEST_P(ConvolutionInSpaceTest, ComesCloseOnRealNumbers) {
  expect_agreement(squares({1, 7, 13, 16}, 16), Numbers::real);
  expect_agreement(others(), Numbers::real);
}

std::string name_of(const testing::TestParamInfo<Grid>& info) {
  const auto& [process, split] = info.param;
  const std::string groups = "In" + std::to_string(process.pc) + "Groups";
  if (split.kind == SplitKind::sample) return "Sample" + groups;
  if (split.kind == SplitKind::group) return "Group" + groups;
  return "Space" + std::to_string(split.h) + "x" + std::to_string(split.w) + groups;
}

INSTANTIATE_TEST_SUITE_P(Grids, ConvolutionInSpaceTest,
                         testing::Values(Grid{{.pc = 2}, {}}, Grid{{.pr = 3}, {}},
                                         Grid{{.pr = 2, .pc = 2}, {.kind = SplitKind::group}},
                                         space(1, 2), space(2, 1), space(3, 1), space(1, 3),
                                         space(2, 2), space(1, 4), space(4, 1), space(2, 3),
                                         space(3, 2), space(2, 1, 2), space(1, 2, 2),
                                         space(3, 1, 2)),
                         name_of);

}  // namespace
}  // namespace rondo::train::convolution_in_space_test
