// Convolutions split over samples, groups and space, alone and one after another, against the
// unsplit ones: what they give, what they send, and when.

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include <rondo/tensor/convolution.hpp>
#include <rondo/tensor/engine.hpp>
#include <rondo/train/halo.hpp>
#include <rondo/train/redistribution.hpp>
#include <rondo/transport/world.hpp>

#include "layers/interior_first.hpp"
#include "support/world.hpp"
#include "train/support/channel_chain.hpp"
#include "train/support/split_layer.hpp"
#include "train/support/whole_layer.hpp"

namespace rondo::train::convolution_in_space_test {
namespace {

using rondo::test::World;
using test::Chain;
using test::Numbers;
using test::WholeLayer;

// Convolutions split over samples, groups and space give what the unsplit one does.

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

/// The features of other layers of networks: a bias and an activation, images in colour, and
/// channels enough for the kernels of large layers.
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
  if (split.kind == SplitKind::replica) return "Group" + groups;
  return "Space" + std::to_string(split.h) + "x" + std::to_string(split.w) + groups;
}

INSTANTIATE_TEST_SUITE_P(Grids, ConvolutionInSpaceTest,
                         testing::Values(Grid{{.pc = 2}, {}}, Grid{{.pr = 3}, {}},
                                         Grid{{.pr = 2, .pc = 2}, {.kind = SplitKind::replica}},
                                         space(1, 2), space(2, 1), space(3, 1), space(1, 3),
                                         space(2, 2), space(1, 4), space(4, 1), space(2, 3),
                                         space(3, 2), space(2, 1, 2), space(1, 2, 2),
                                         space(3, 1, 2)),
                         name_of);

// The messages of a convolution in space: what it sends, when, and with what memory.

/// Elements that a rank has sent by each call of a kernel.
struct Sent {
  std::int64_t forward = 0;
  std::int64_t parameters = 0;
  std::int64_t input = 0;
};

/// Runs the layer and counts what the transport says was sent; forward twice, the second counts.
Sent sent_by(transport::World& world, LayerKernel& kernel, const NodeLayout& place,
             const test::WholeLayer& whole) {
  const Box x_box = place.x.box_of(world.rank());
  const Box y_box = place.y.box_of(world.rank());
  test::WholeLayer part{.x = test::part_of(whole.x, x_box),
                        .dy = test::part_of(whole.dy, y_box),
                        .parameters = whole.parameters,
                        .y = tensor::Tensor(y_box.shape()),
                        .dx = tensor::Tensor(x_box.shape()),
                        .gradients = std::vector<float>(whole.parameters.size())};
  const BackwardOperands operands = test::operands_of(part);
  const auto elements = [&](auto call) {
    const auto before = world.counters().sent_bytes;
    call();
    return static_cast<std::int64_t>((world.counters().sent_bytes - before) / sizeof(float));
  };
  kernel.load(whole.parameters);
  const auto forward = [&] {
    kernel.forward_training({.x = part.x.view(), .y = part.y.view(), .parameters = part.parameters},
                            {});
  };
  forward();
  return {.forward = elements(forward),
          .parameters = elements([&] { kernel.backward_parameters(operands); }),
          .input = elements([&] { kernel.backward_input(operands); })};
}

NodeLayout place_in_space(ProcessGrid grid, int h, int w, const test::WholeLayer& whole) {
  return test::place_on(grid, {.kind = SplitKind::space, .h = h, .w = w}, whole);
}

/// Calls check(world, place, what was sent) on every rank.
template <class Check>
void for_each_rank(int h, int w, const ConvolutionLayer& layer, tensor::Shape x,
                   bool input_gradient, Check check) {
  const test::WholeLayer whole = test::make_whole_layer(layer, x, Numbers::whole);
  const ProcessGrid grid{.pr = h * w};
  World(rondo::test::Backend::shm_nodes, grid.ranks()).run([&](transport::World& world) {
    test::GridRank rank(world, grid);
    const NodeLayout place = place_in_space(grid, h, w, whole);
    const auto kernel = make_convolution_in_space(rank.context, layer, place, input_gradient);
    check(world, place, sent_by(world, *kernel, place, whole));
  });
}

TEST(ConvolutionHaloTest, SendsWhatThePlanSays) {
  for (const auto& [h, w] : {std::array{2, 1}, {1, 3}, {2, 2}, {3, 2}}) {
    for (const std::int64_t kernel : {1, 3, 5}) {
      for (const std::int64_t stride : {1, 2}) {
        const ConvolutionLayer layer{
            .filters = 16, .kernel = kernel, .stride = stride, .padding = (kernel - 1) / 2};
        for_each_rank(h, w, layer, {1, 9, 13, 8}, true,
                      [&](transport::World& world, const NodeLayout& place, const Sent& sent) {
                        const Windows windows = windows_of(layer);
                        const auto x = redistribution(
                            place.x, forward_needs(place.x, place.y, windows), world.rank());
                        const auto dy = redistribution(
                            place.y, backward_needs(place.x, place.y, windows), world.rank());
                        EXPECT_EQ(sent.forward, x.elements_sent());
                        EXPECT_EQ(sent.parameters + sent.input, dy.elements_sent());
                      });
      }
    }
  }
}

TEST(ConvolutionHaloTest, IsHalfAKernelOfRowsOnEachSideOfAnEvenSplit) {
  for (const std::int64_t kernel : {1, 3, 5, 7}) {
    const ConvolutionLayer layer{.filters = 16, .kernel = kernel, .padding = (kernel - 1) / 2};
    for_each_rank(4, 1, layer, {2, 16, 6, 8}, true,
                  [&](transport::World& world, const NodeLayout&, const Sent& sent) {
                    const int sides = world.rank() == 0 || world.rank() == 3 ? 1 : 2;
                    EXPECT_EQ(sent.forward, 2 * sides * (kernel / 2) * 6 * 8);
                    EXPECT_EQ(sent.parameters + sent.input, 2 * sides * (kernel / 2) * 6 * 16);
                  });
  }
}

TEST(ConvolutionHaloTest, OfDyLeavesWithTheFirstHalfOfBackward) {
  for_each_rank(2, 1, {.filters = 16}, {1, 8, 6, 8}, true,
                [](transport::World&, const NodeLayout&, const Sent& sent) {
                  EXPECT_EQ(sent.parameters, 6 * 16);
                  EXPECT_EQ(sent.input, 0);
                });
}

TEST(ConvolutionHaloTest, OfDyStaysWhereNobodyWantsTheGradientOfTheInput) {
  for_each_rank(2, 1, {.filters = 16}, {1, 8, 6, 8}, false,
                [](transport::World&, const NodeLayout&, const Sent& sent) {
                  EXPECT_EQ(sent.parameters, 0);
                  EXPECT_EQ(sent.input, 0);
                });
}

TEST(ConvolutionHaloTest, RefusesPaddingAsWideAsTheKernel) {
  const ConvolutionLayer layer{.filters = 16, .kernel = 1, .padding = 1};
  World(1).run([&](transport::World& world) {
    test::GridRank rank(world, {});
    const NodeLayout place{.split = {.kind = SplitKind::space},
                           .x = by_replica({1, 4, 4, 8}, {}),
                           .y = by_replica({1, 6, 6, 16}, {})};
    EXPECT_THROW(static_cast<void>(make_convolution_in_space(rank.context, layer, place, true)),
                 std::invalid_argument);
  });
}

// Convolutions one after another, each split in its own way over samples, groups or space, with a
// change of layout between: every layer gives what the unsplit ones do.

/// One layer of a chain on one rank, behind the change of layout that leads to it.
struct Link {
  Link(const KernelContext& context, const ConvolutionLayer& layer, const Partition& before,
       NodeLayout where)
      : place(std::move(where)),
        move(make_redistribution(context, before, place.x)),
        kernel(make_convolution_in_space(context, layer, place, true)),
        part{.x_box = place.x.box_of(context.communicators.rank()),
             .y_box = place.y.box_of(context.communicators.rank())},
        x(part.x_box.shape()),
        dy(part.y_box.shape()),
        dx_before(before.box_of(context.communicators.rank()).shape()) {
    part.y = tensor::Tensor(part.y_box.shape());
    part.dx = tensor::Tensor(part.x_box.shape());
  }

  void forward(const tensor::Tensor& before, const WholeLayer& whole) {
    move->forward_training({.x = before.view(), .y = x.view()}, {});
    kernel->load(whole.parameters);
    kernel->forward_training({.x = x.view(), .y = part.y.view(), .parameters = whole.parameters},
                             {});
  }

  void backward(const tensor::Tensor& gradient, const WholeLayer& whole) {
    std::ranges::copy(gradient.span(), dy.span().begin());
    part.gradients.resize(whole.parameters.size());
    const BackwardOperands operands{.x = x.view(),
                                    .y = part.y.view(),
                                    .dy = dy.view(),
                                    .dx = test::wanted(part.dx),
                                    .parameters = whole.parameters,
                                    .gradients = part.gradients};
    kernel->backward_parameters(operands);
    kernel->backward_input(operands);
    move->backward_input({.dy = part.dx.view(), .dx = test::wanted(dx_before)});
  }

  NodeLayout place;
  std::unique_ptr<LayerKernel> move;
  std::unique_ptr<LayerKernel> kernel;
  test::SplitLayer part;
  tensor::Tensor x, dy;
  tensor::Tensor dx_before;  ///< as the layer before has written its output
};

Chain chain_of(std::size_t length) {
  const auto relu = tensor::Activation::relu;
  Chain chain{.x = {3, 13, 9, 8},
              .layers = {{.filters = 16, .bias = true, .activation = relu},
                         {.filters = 8, .kernel = 5, .stride = 2, .padding = 2, .activation = relu},
                         {.filters = 16, .kernel = 1, .padding = 0, .bias = true}}};
  chain.layers.resize(length);
  return chain;
}

void run_on(const KernelContext& context, const Chain& chain, const std::vector<LayerSplit>& splits,
            const std::vector<WholeLayer>& wholes, Numbers numbers) {
  const ProcessGrid grid = context.communicators.grid();
  std::vector<std::unique_ptr<Link>> links;
  for (std::size_t i = 0; i < splits.size(); ++i) {
    NodeLayout place = test::place_on(grid, splits[i], wholes[i]);
    const Partition before = i == 0 ? place.x : links.back()->place.y;
    links.push_back(std::make_unique<Link>(context, chain.layers[i], before, std::move(place)));
  }
  const tensor::Tensor x = test::part_of(wholes.front().x, links.front()->part.x_box);
  const tensor::Tensor dy = test::part_of(wholes.back().dy, links.back()->part.y_box);

  for (std::size_t i = 0; i < links.size(); ++i) {
    links[i]->forward(i == 0 ? x : links[i - 1]->part.y, wholes[i]);
  }
  for (std::size_t i = links.size(); i-- > 0;) {
    links[i]->backward(i + 1 == links.size() ? dy : links[i + 1]->dx_before, wholes[i]);
  }

  for (std::size_t i = 0; i < links.size(); ++i) {
    SCOPED_TRACE("layer " + std::to_string(i));
    test::sum_gradients(context, links[i]->place, links[i]->part.gradients);
    test::expect_parts_of(wholes[i], links[i]->part, numbers);
  }
}

void expect_agreement(ProcessGrid grid, const std::vector<LayerSplit>& splits) {
  const Chain chain = chain_of(splits.size());
  tensor::Engine engine;
  for (const Numbers numbers : {Numbers::whole, Numbers::real}) {
    const std::vector<WholeLayer> wholes = test::run_whole(engine, chain, numbers);
    World(grid.ranks()).run([&](transport::World& world) {
      test::GridRank rank(world, grid);
      run_on(rank.context, chain, splits, wholes, numbers);
    });
  }
}

constexpr LayerSplit sample{};
constexpr LayerSplit replica{.kind = SplitKind::replica};
constexpr LayerSplit in_space(int h, int w) { return {.kind = SplitKind::space, .h = h, .w = w}; }

std::vector<LayerSplit> all(std::size_t length, const LayerSplit& split) {
  std::vector<LayerSplit> splits;
  while (splits.size() < length) splits.push_back(split);
  return splits;
}

TEST(SpaceChainTest, OfOneTwoAndThreeLayersInOneLayout) {
  for (std::size_t length = 1; length <= 3; ++length) {
    expect_agreement({.pr = 3}, all(length, in_space(3, 1)));
    expect_agreement({.pr = 4}, all(length, in_space(2, 2)));
    expect_agreement({.pr = 2, .pc = 2}, all(length, in_space(1, 2)));
  }
}

TEST(SpaceChainTest, ChangesItsLayoutOnTheWay) {
  expect_agreement({.pr = 4}, {in_space(4, 1), in_space(2, 2), in_space(1, 4)});
  expect_agreement({.pr = 6}, {in_space(2, 3), sample, in_space(3, 2)});
  expect_agreement({.pr = 2, .pc = 2}, {in_space(2, 1), replica, sample});
  expect_agreement({.pr = 2, .pc = 3}, {sample, in_space(1, 2), replica});
}

// Inner rows before those at the cuts: which rows, from what memory, and when it pays.

constexpr std::int64_t channels = 8;
constexpr Window three{.kernel = 3, .before = 1, .after = 1};

/// Rank 1 of a image in h x w parts, for a convolution of 3x3.
struct Part {
  explicit Part(tensor::Shape extents, int h, int w)
      : x(by_space(extents, {.pr = h * w}, h, w)),
        halo(forward_halo(x, x, windows, 1)),
        held(x.box_of(1)) {}

  [[nodiscard]] bool pays(std::int64_t weights = 1) const {
    return InteriorFirst::pays(halo, held, halo.needed, weights);
  }

  Windows windows{three, three};
  Partition x;
  Halo halo;
  Box held;
};

TEST(InteriorFirstTest, PaysForOneImageCutBetweenRows) {
  EXPECT_TRUE(Part({1, 24, 8, channels}, 3, 1).pays());
  EXPECT_TRUE(Part({1, 24, 8, channels}, 2, 1).pays());
}

TEST(InteriorFirstTest, DoesNotPayWhereItWouldCopyOrComputeInBits) {
  EXPECT_FALSE(Part({2, 24, 8, channels}, 3, 1).pays()) << "two images";
  EXPECT_FALSE(Part({1, 24, 8, channels}, 1, 3).pays()) << "columns";
  EXPECT_FALSE(Part({1, 24, 8, channels}, 2, 2).pays()) << "rows and columns";
  EXPECT_FALSE(Part({1, 9, 8, channels}, 3, 1).pays()) << "one inner row of three";
  const std::int64_t held = 8 * 8 * channels;
  EXPECT_FALSE(Part({1, 24, 8, channels}, 3, 1).pays(4 * held + 1)) << "many weights";
}

TEST(InteriorFirstTest, InnerRowsComeFromThePartBorderRowsFromItsCopyWithTheHalo) {
  const Part part({1, 24, 6, channels}, 3, 1);
  tensor::Engine engine;
  tensor::Convolution whole(engine, {.input = part.halo.needed.shape(),
                                     .filters = 16,
                                     .kernel_h = 3,
                                     .kernel_w = 3,
                                     .pad_left = 1,
                                     .pad_right = 1});
  std::vector<float> weights(16 * channels * 9);
  test::fill(weights, Numbers::whole, 1);
  InteriorFirst interior(whole, part.halo, part.windows, 24, part.held, part.halo.needed);
  whole.pack_weights(weights);  // for all that share them
  const tensor::Tensor image = test::filled(part.x.extents(), Numbers::whole, 2);
  const tensor::Tensor held = test::part_of(image, part.held);
  const tensor::Tensor read = test::part_of(image, part.halo.needed);
  tensor::Tensor expected(whole.spec().output());
  whole.forward(read.view(), {}, expected.view());
  tensor::Tensor y(whole.spec().output());
  std::ranges::fill(y.span(), -0.5F);
  const std::size_t row = 6 * 16;
  const auto inner = [&](const tensor::Tensor& all) {
    return all.span().subspan(row, all.span().size() - 2 * row);
  };

  interior.inner(held.view(), {}, y.view());
  EXPECT_TRUE(test::agree(inner(y), inner(expected), Numbers::whole));
  EXPECT_EQ(y.span().front(), -0.5F);
  EXPECT_EQ(y.span().back(), -0.5F);

  interior.border(read.view(), {}, y.view());
  EXPECT_TRUE(test::agree(y.span(), expected.span(), Numbers::whole));
}

}  // namespace
}  // namespace rondo::train::convolution_in_space_test
