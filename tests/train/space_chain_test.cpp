// Convolutions one after another, each split in its own way over samples, groups or space, with a
// change of layout between: every layer gives what the unsplit ones do.

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include <rondo/tensor/engine.hpp>
#include <rondo/transport/world.hpp>

#include "support/world.hpp"
#include "train/support/channel_chain.hpp"
#include "train/support/split_layer.hpp"

namespace rondo::train::space_chain_test {
namespace {

using rondo::test::World;
using test::Chain;
using test::Numbers;
using test::WholeLayer;

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
constexpr LayerSplit group{.kind = SplitKind::group};
constexpr LayerSplit space(int h, int w) { return {.kind = SplitKind::space, .h = h, .w = w}; }

std::vector<LayerSplit> all(std::size_t length, const LayerSplit& split) {
  std::vector<LayerSplit> splits;
  while (splits.size() < length) splits.push_back(split);
  return splits;
}

TEST(SpaceChainTest, OfOneTwoAndThreeLayersInOneLayout) {
  for (std::size_t length = 1; length <= 3; ++length) {
    expect_agreement({.pr = 3}, all(length, space(3, 1)));
    expect_agreement({.pr = 4}, all(length, space(2, 2)));
    expect_agreement({.pr = 2, .pc = 2}, all(length, space(1, 2)));
  }
}

TEST(SpaceChainTest, ChangesItsLayoutOnTheWay) {
  expect_agreement({.pr = 4}, {space(4, 1), space(2, 2), space(1, 4)});
  expect_agreement({.pr = 6}, {space(2, 3), sample, space(3, 2)});
  expect_agreement({.pr = 2, .pc = 2}, {space(2, 1), group, sample});
  expect_agreement({.pr = 2, .pc = 3}, {sample, space(1, 2), group});
}

}  // namespace
}  // namespace rondo::train::space_chain_test
