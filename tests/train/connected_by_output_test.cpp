// The 1.5D fully connected layer against the unsplit one.

#include <mutex>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "layers/split_kernels.hpp"
#include "support/world.hpp"
#include "train/support/whole_layer.hpp"

namespace rondo::train::connected_by_output_test {
namespace {

using rondo::test::World;
using tensor::Activation;
using test::Numbers;
using test::WholeLayer;

struct Case {
  FullyConnectedLayer layer;
  tensor::Shape x;
};

// Images and vectors; outputs that no replica divides evenly, and fewer than ranks.
const Case cases[] = {{{.outputs = 24, .activation = Activation::relu}, {6, 1, 1, 32}},
                      {{.outputs = 19}, {5, 3, 2, 16}},
                      {{.outputs = 2, .activation = Activation::relu}, {1, 2, 2, 8}}};

/// The results of all ranks, put together; gradients of parameters are added over the replicas.
struct Assembled {
  explicit Assembled(const WholeLayer& whole)
      : y(whole.y.shape()), dx(whole.dx.shape()), gradients(whole.gradients.size()) {}

  std::mutex mutex = {};
  tensor::Tensor y;
  tensor::Tensor dx;
  std::vector<float> gradients;
};

/// This rank's part of the outputs, and where its rows and biases begin in the whole replica.
struct Slice {
  Range outputs;
  std::size_t inputs;
  std::size_t all_outputs;

  [[nodiscard]] std::size_t weights() const { return size() * inputs; }
  [[nodiscard]] std::size_t size() const { return static_cast<std::size_t>(outputs.size()); }
  [[nodiscard]] std::size_t first_weight() const {
    return static_cast<std::size_t>(outputs.first) * inputs;
  }
  [[nodiscard]] std::size_t first_bias() const {
    return all_outputs * inputs + static_cast<std::size_t>(outputs.first);
  }
  /// Calls visit(index in the whole replica, index in the part).
  template <class Visit>
  void for_each(Visit visit) const {
    for (std::size_t i = 0; i < weights(); ++i) visit(first_weight() + i, i);
    for (std::size_t i = 0; i < size(); ++i) visit(first_bias() + i, weights() + i);
  }
};

void run_part(const KernelContext& context, const Case& given, const WholeLayer& whole,
              Assembled& assembled) {
  const ProcessGrid grid = context.communicators.grid();
  const int rank = context.communicators.rank();
  const NodeLayout place{.split = {.kind = SplitKind::channel, .channels = {.filters = grid.pr}},
                         .x = by_replica(given.x, grid),
                         .y = by_replica(whole.y.shape(), grid)};
  const Slice slice{even_range(given.layer.outputs, grid.pr, grid.position_of(rank)),
                    static_cast<std::size_t>(given.x.image()),
                    static_cast<std::size_t>(given.layer.outputs)};
  std::vector<float> parameters(slice.weights() + slice.size());
  slice.for_each(
      [&](std::size_t from, std::size_t into) { parameters[into] = whole.parameters[from]; });
  const Box x_box = place.x.box_of(rank);
  const Box y_box = place.y.box_of(rank);
  WholeLayer part{.x = test::part_of(whole.x, x_box, context.memory),
                  .dy = test::part_of(whole.dy, y_box, context.memory),
                  .parameters = parameters,
                  .y = tensor::Tensor(y_box.shape(), context.memory),
                  .dx = tensor::Tensor(x_box.shape(), context.memory),
                  .gradients = std::vector<float>(parameters.size(), -1.0F)};
  const auto kernel = make_connected_by_output(context, given.layer, place, true);
  test::run(*kernel, part);

  EXPECT_TRUE(test::agree(part.y.span(), test::part_of(whole.y, y_box).span(), Numbers::real));
  const std::scoped_lock lock(assembled.mutex);
  test::put_part(part.y.span(), y_box, assembled.y);
  test::put_part(part.dx.span(), x_box, assembled.dx);
  slice.for_each([&](std::size_t into, std::size_t from) {
    assembled.gradients[into] += part.gradients[from];
  });
}

void expect_equal(ProcessGrid grid, const Case& given, Numbers numbers) {
  SCOPED_TRACE(std::to_string(grid.pr) + " x " + std::to_string(grid.pc) + " ranks, " +
               std::to_string(given.layer.outputs) + " outputs");
  tensor::Engine engine;
  const WholeLayer whole = test::run_whole(engine, given.layer, given.x, numbers);
  Assembled assembled(whole);

  World(grid.ranks()).run([&](transport::World& world) {
    tensor::Engine own;
    GridCommunicators communicators(world.communicator(), grid);
    run_part({own, communicators, &world.arena()}, given, whole, assembled);
  });

  EXPECT_TRUE(test::agree(assembled.y.span(), whole.y.span(), numbers)) << "y";
  EXPECT_TRUE(test::agree(assembled.dx.span(), whole.dx.span(), numbers)) << "dx";
  EXPECT_TRUE(test::agree(assembled.gradients, whole.gradients, numbers)) << "dw, db";
}

TEST(ConnectedByOutputTest, EqualsTheUnsplitLayer) {
  for (const int pr : {1, 2, 3, 4, 6}) {
    for (const Case& given : cases) {
      for (const Numbers numbers : {Numbers::whole, Numbers::real}) {
        expect_equal({.pr = pr, .pc = 1}, given, numbers);
      }
    }
  }
}

// With one image and two replicas, the ranks of one replica have none.
TEST(ConnectedByOutputTest, EqualsTheUnsplitLayerOnSeveralGroups) {
  for (const int pr : {2, 3}) {
    for (const Case& given : cases) expect_equal({.pr = pr, .pc = 2}, given, Numbers::whole);
  }
}

TEST(ConnectedByOutputTest, RefusesALayoutInWhichRanksOfAGroupHoldDifferentSamples) {
  World(2).run([](transport::World& world) {
    tensor::Engine engine;
    GridCommunicators communicators(world.communicator(), {.pr = 2});
    const NodeLayout place{.x = by_sample({4, 1, 1, 8}, 2), .y = by_sample({4, 1, 1, 6}, 2)};
    EXPECT_THROW(static_cast<void>(make_connected_by_output({engine, communicators, &world.arena()},
                                                            {.outputs = 6}, place, true)),
                 std::invalid_argument);
  });
}

}  // namespace
}  // namespace rondo::train::connected_by_output_test
