// Whole models on every grid of 2, 4, 6 and 8 ranks: some steps of plain SGD end where one rank
// ends.
//
// Sums in another order differ by rounding, and where an activation is nearly 0, or two inputs of a
// max pooling nearly equal, that decides which way a gradient goes: one such element can change a
// gradient by a per cent. So the models take small steps, which hides errors of that size. The same
// models without kinks take large ones.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <iterator>
#include <map>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include <rondo/tensor/data_type.hpp>
#include <rondo/tensor/engine.hpp>
#include <rondo/train/executor.hpp>
#include <rondo/train/grid.hpp>
#include <rondo/train/model.hpp>
#include <rondo/transport/communicator.hpp>

#include "config/grid_choice.hpp"
#include "support/sanitized.hpp"
#include "support/world.hpp"
#include "train/support/network.hpp"

namespace rondo::train::grid_training_test {
namespace {

constexpr std::int64_t images = 8;
constexpr int steps = rondo::test::sanitized ? 2 : 5;
constexpr double tolerance = 1e-4;  // ||a - b|| / ||b||, of every parameter

/// AlexNet's layers, a quarter as wide, for smaller images.
Model small_alexnet() {
  const auto convolution = [](std::int64_t filters, std::int64_t kernel, std::int64_t padding,
                              std::int64_t stride) {
    return ConvolutionLayer{.filters = filters,
                            .kernel = kernel,
                            .stride = stride,
                            .padding = padding,
                            .bias = true,
                            .activation = tensor::Activation::relu,
                            .initial = Initial::uniform_fan_in};
  };
  constexpr PoolingLayer pool{.window = 3, .stride = 2};
  constexpr auto relu = tensor::Activation::relu;
  ModelBuilder builder("small-alexnet", {1, 67, 67, 3}, 10);
  ValueId x = builder.add("features.0", convolution(16, 11, 2, 4), ModelBuilder::input);
  x = builder.add("features.2", pool, x);
  x = builder.add("features.3", convolution(48, 5, 2, 1), x);
  x = builder.add("features.5", pool, x);
  x = builder.add("features.6", convolution(96, 3, 1, 1), x);
  x = builder.add("features.10", convolution(64, 3, 1, 1), x);
  x = builder.add("classifier.1", FullyConnectedLayer{.outputs = 64, .activation = relu}, x);
  x = builder.add("classifier.4", FullyConnectedLayer{.outputs = 50, .activation = relu}, x);
  builder.add("classifier.6", FullyConnectedLayer{.outputs = 10}, x);
  return builder.finish();
}

/// Layers with several inputs, groups and dropout; what cannot be split by channel is not.
Model joined() {
  ModelBuilder builder("joined", {1, 16, 16, 3}, 10);
  const ValueId stem = builder.add("stem", ConvolutionLayer{.filters = 16}, ModelBuilder::input);
  const ValueId x = builder.add("bn", BatchNormLayer{}, stem);
  const ValueId deep = builder.add("deep", ConvolutionLayer{.filters = 16, .groups = 16}, x);
  const ValueId pair = builder.add("pair", ConvolutionLayer{.filters = 16, .groups = 2}, deep);
  const ValueId sum =
      builder.add("sum", AddLayer{.activation = tensor::Activation::relu}, {x, deep, pair});
  const ValueId join = builder.add("join", ConcatLayer{}, {sum, stem});
  const ValueId drop = builder.add("drop", DropoutLayer{.probability = 0.25}, join);
  const ValueId next = builder.add("next", ConvolutionLayer{.filters = 32, .stride = 2}, drop);
  const ValueId six = builder.add("six", ActivationLayer{.function = Function::relu6}, next);
  const ValueId wide = builder.add("wide", ConcatLayer{}, {six, next});
  builder.add("fc", FullyConnectedLayer{.outputs = 10},
              builder.add("pool", GlobalAveragePoolingLayer{}, wide));
  return builder.finish();
}

/// Without ReLU, and with averages in place of maxima.
Model smooth(Model model) {
  for (LayerSpec& layer : model.layers) {
    const auto change = [&]<typename Layer>(auto Layer::* member, auto value) {
      const auto* now = layer.kind.get_if<Layer>();
      if (now == nullptr) return;
      Layer changed = *now;
      changed.*member = value;
      layer.kind = changed;
    };
    change(&ConvolutionLayer::activation, tensor::Activation::none);
    change(&FullyConnectedLayer::activation, tensor::Activation::none);
    change(&BatchNormLayer::activation, tensor::Activation::none);
    change(&AddLayer::activation, tensor::Activation::none);
    if (layer.kind.get_if<ActivationLayer>() != nullptr) layer.kind = DropoutLayer{};
    change(&PoolingLayer::kind, tensor::PoolingKind::average);
  }
  return model;
}

/// As initialize(), but shifts of batch norm begin at 0.5: distances are measured against the norm.
void begin(const ParameterLayout& layout, std::span<float> parameters,
           std::span<float> statistics) {
  initialize(layout, 1, parameters, statistics);
  for (const Parameter& parameter : layout.parameters) {
    if (parameter.initial != Initial::zeros) continue;
    std::ranges::fill(parameters.subspan(parameter.offset, parameter.size()), 0.5F);
  }
}

void descend(float rate, std::span<float> parameters, std::span<const float> gradients) {
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    parameters[i] -= rate / static_cast<float>(images) * gradients[i];
  }
}

/// The results of one rank alone.
struct Reference {
  Reference(const Model& model, float rate)
      : network(model, {.training_batches = {images}, .evaluation_batch = images}),
        samples(test::make_samples(network.model, images)) {
    begin(network.layout, network.parameters, network.statistics);
    for (int step = 0; step < steps; ++step) {
      losses.push_back(network.train(samples.batch()).sum);
      descend(rate, network.parameters, network.gradients);
    }
    test_loss = network.evaluate(samples.batch()).sum;
  }

  test::Network network;
  test::Samples samples;
  std::vector<double> losses = {};
  double test_loss = 0.0;
};

/// One rank of a grid, with plain SGD in place of an update scheme.
class GridRank {
 public:
  GridRank(transport::World& world, const Model& model, const GridChoice& choice,
           tensor::DataType precision = tensor::DataType::f32)
      : all_(world.communicator()),
        choice_(choice),
        group_(all_.split(choice.grid.replica_of(all_.rank()))),
        kernels_across_(all_.split(choice.grid.position_of(all_.rank()))),
        layout_(layout_of(model, choice.splits, choice.grid.pr, group_.rank())),
        slices_(slices_in_replica(model, choice.splits, choice.grid.pr)),
        parameters_(layout_.parameter_count),
        gradients_(layout_.parameter_count, 0.0F, &world.arena()),
        statistics_(layout_.statistic_count),
        executor_(engine_, model,
                  {.replica = &group_,
                   .across = &kernels_across_,
                   .splits = choice.splits,
                   .batch_norm = choice.batch_norm,
                   .memory = &world.arena()},
                  {parameters_, gradients_, statistics_},
                  {.training_batches = {share().size()},
                   .evaluation_batch = share().size(),
                   .precision = precision}) {
    begin(layout_, parameters_, statistics_);
    for (const int slices : std::set<int>(slices_.begin(), slices_.end())) {
      holders_.emplace(slices, all_.split(group_.rank() % slices));
    }
  }

  double train(const test::Samples& samples, float rate) {
    const double loss = add_up_gradients(samples);
    descend(rate, parameters_, gradients_);
    return loss;
  }

  /// One step without its update: the loss, and gradients of all samples.
  double add_up_gradients(const test::Samples& samples) {
    test::Silent silent;
    const Batch batch = samples.part(share().first, share().size());
    const double loss = executor_.train(batch, silent, {.first_sample = share().first}).sum;
    for (std::size_t i = 0; i < layout_.blocks.size(); ++i) {
      const ParameterBlock& block = layout_.blocks[i];
      const auto part = std::span(gradients_).subspan(block.offset, block.size);
      holders_.at(slices_[i]).allreduce(part).wait();
    }
    return sum(loss);
  }

  /// The largest ||a - b|| / ||b|| over this rank's parts of all gradients.
  [[nodiscard]] double farthest_gradient(const test::Network& network) const {
    double farthest = 0.0;
    for (std::size_t i = 0; i < layout_.parameters.size(); ++i) {
      const Parameter& whole = network.layout.parameters[i];
      const auto expected = std::span(network.gradients).subspan(whole.offset, whole.size());
      farthest = std::max(farthest, distance(gradients_, layout_.parameters[i], expected) /
                                        std::max(test::norm(expected), 1e-6));
    }
    return farthest;
  }

  /// Replaces the parameters, each element by itself.
  void change_parameters(float (*change)(float)) {
    std::ranges::transform(parameters_, parameters_.begin(), change);
  }

  double evaluate(const test::Samples& samples) {
    const Batch batch = samples.part(share().first, share().size());
    return sum(executor_.evaluate(batch, parameters_, statistics_).sum);
  }

  /// Compares this rank's part of every parameter; the norm is the whole parameter's.
  void expect_near(const test::Network& network) const {
    for (std::size_t i = 0; i < layout_.parameters.size(); ++i) {
      const Parameter& part = layout_.parameters[i];
      const Parameter& whole = network.layout.parameters[i];
      const auto expected = std::span(network.parameters).subspan(whole.offset, whole.size());
      EXPECT_LE(distance(parameters_, part, expected) / test::norm(expected), tolerance)
          << part.name;
    }
  }

 private:
  [[nodiscard]] Range share() const {
    return even_range(images, choice_.grid.pc, choice_.grid.replica_of(all_.rank()));
  }

  double sum(double mine) {
    all_.allreduce(std::span(&mine, 1)).wait();
    return mine;
  }

  /// ||a - b|| over the part that this rank holds, whose elements lie in `mine`.
  [[nodiscard]] static double distance(std::span<const float> mine, const Parameter& part,
                                       std::span<const float> whole) {
    std::vector<float> difference = test::part_of_parameter(part, whole);
    for (std::size_t i = 0; i < part.size(); ++i) difference[i] -= mine[part.offset + i];
    return test::norm(difference);
  }

  transport::Communicator& all_;
  GridChoice choice_;
  transport::Communicator group_;
  transport::Communicator kernels_across_;
  std::map<int, transport::Communicator> holders_;  // of the same slice, by their number
  ParameterLayout layout_;
  std::vector<int> slices_;
  std::vector<float> parameters_;
  std::pmr::vector<float> gradients_;
  std::vector<float> statistics_;
  tensor::Engine engine_{1};
  Executor executor_;
};

/// All ways to write `ranks` as a product of [grid]'s numbers.
std::vector<Experiment::Grid> grids_of(int ranks) {
  std::vector<Experiment::Grid> grids;
  for (int pr = 1; pr <= ranks; ++pr) {
    if (ranks % pr != 0) continue;
    for (int a = 1; a <= pr; ++a) {
      if (pr % a != 0) continue;
      grids.push_back({.channel = a, .filter = pr / a, .batch_norm = BatchNormScope::all});
      if (pr > 1)
        grids.push_back({.height = a, .width = pr / a, .batch_norm = BatchNormScope::all});
    }
  }
  return grids;
}

/// Some that split convolutions in space and by channel at once.
std::vector<Experiment::Grid> grids_of_tiles(int ranks) {
  std::vector<Experiment::Grid> grids;
  if (ranks % 4 == 0)
    grids.push_back({.filter = 2, .height = 2, .batch_norm = BatchNormScope::all});
  if (ranks == 4) grids.push_back({.channel = 2, .width = 2, .batch_norm = BatchNormScope::all});
  if (ranks == 6) grids.push_back({.filter = 3, .height = 2, .batch_norm = BatchNormScope::all});
  if (ranks == 8) {
    grids.push_back({.channel = 2, .filter = 2, .height = 2, .batch_norm = BatchNormScope::all});
    grids.push_back({.channel = 2, .height = 2, .width = 2, .batch_norm = BatchNormScope::all});
  }
  return grids;
}

std::string name_of(const Experiment::Grid& grid) {
  return "channel " + std::to_string(grid.channel) + ", filter " + std::to_string(grid.filter) +
         ", height " + std::to_string(grid.height) + ", width " + std::to_string(grid.width);
}

class GridTrainingTest : public testing::TestWithParam<int> {
 protected:
  static void train_on_all_grids(const Model& model, float rate) {
    const int ranks = GetParam();
    const Reference reference(model, rate);
    std::vector<Experiment::Grid> grids = grids_of_tiles(ranks);
    std::ranges::copy(grids_of(ranks), std::back_inserter(grids));
    for (const Experiment::Grid& grid : grids) {
      const GridChoice choice = choose_grid(model, grid, ranks, images);
      rondo::test::World{ranks}.run([&](transport::World& world) {
        SCOPED_TRACE(name_of(grid));
        GridRank rank(world, model, choice);
        for (const double expected : reference.losses) {
          EXPECT_NEAR(rank.train(reference.samples, rate), expected, tolerance * expected);
        }
        rank.expect_near(reference.network);
        EXPECT_NEAR(rank.evaluate(reference.samples), reference.test_loss,
                    tolerance * reference.test_loss);
      });
      if (HasFailure()) return;
    }
  }
};

using SmoothGridTrainingTest = GridTrainingTest;

constexpr float small = 1e-3F;
constexpr float large = 0.05F;

TEST_P(GridTrainingTest, ResNet20WithGlobalBatchNormEndsWhereOneRankEnds) {
  train_on_all_grids(make_model("resnet20", {1, 16, 16, 3}), small);
}

TEST_P(SmoothGridTrainingTest, ResNet20EndsWhereOneRankEndsInLargeSteps) {
  train_on_all_grids(smooth(make_model("resnet20", {1, 16, 16, 3})), large);
}

TEST_P(GridTrainingTest, ASmallAlexNetEndsWhereOneRankEnds) {
  train_on_all_grids(small_alexnet(), small);
}

TEST_P(SmoothGridTrainingTest, ASmallAlexNetEndsWhereOneRankEndsInLargeSteps) {
  train_on_all_grids(smooth(small_alexnet()), large);
}

// Dropout drops the same elements, whichever rank holds them.
TEST_P(GridTrainingTest, LayersWithSeveralInputsEndWhereOneRankEnds) {
  train_on_all_grids(joined(), small);
}

TEST_P(SmoothGridTrainingTest, LayersWithSeveralInputsEndWhereOneRankEndsInLargeSteps) {
  train_on_all_grids(smooth(joined()), large);
}

// In bf16.

class Bf16GridTrainingTest : public testing::Test {
 protected:
  static constexpr int ranks = 4;

  void SetUp() override {
    if (!tensor::computes_bf16()) GTEST_SKIP() << "this CPU does not compute bf16";
  }

  /// The grids of 4 ranks, and one on which `layer` is split in another way than its neighbours.
  static std::vector<Experiment::Grid> grids(const std::string& layer) {
    std::vector<Experiment::Grid> all = grids_of(ranks);
    all.push_back({.channel = 2,
                   .filter = 2,
                   .batch_norm = BatchNormScope::all,
                   .layers = {{layer, "height=2 width=2"}, {"fc", "sample"}}});
    return all;
  }
};

// Partial sums are fp32 and rounded once, but halos' gradients of pooling are rounded before they
// are added, and moments of a batch are summed otherwise. Each may move a rounding of an
// activation, by at most 1/256 of it, and batch norm over few pixels enlarges that.
TEST_F(Bf16GridTrainingTest, GradientsAreThoseOfOneRankButForRounding) {
  constexpr double of_gradients = 0.1;
  constexpr double of_losses = 0.01;
  Model alexnet = smooth(small_alexnet());
  alexnet.layers.back().name = "fc";
  const std::pair<Model, std::string> cases[] = {
      {smooth(make_model("resnet8", {1, 16, 16, 3})), "layer1*"},
      {alexnet, "features.3"},
      {smooth(joined()), "next"}};
  for (const auto& [model, layer] : cases) {
    test::Network one(model, {.training_batches = {images}, .precision = tensor::DataType::bf16});
    const test::Samples samples = test::make_samples(model, images);
    begin(one.layout, one.parameters, one.statistics);
    const double loss = one.train(samples.batch()).sum;
    for (const Experiment::Grid& grid : grids(layer)) {
      if (model.name == "joined" && grid.channel * grid.filter > 1) continue;
      const GridChoice choice = choose_grid(model, grid, ranks, images);
      rondo::test::World{ranks}.run([&](transport::World& world) {
        SCOPED_TRACE(model.name + ": " + name_of(grid));
        GridRank rank(world, model, choice, tensor::DataType::bf16);
        EXPECT_NEAR(rank.add_up_gradients(samples), loss, of_losses * loss);
        EXPECT_LE(rank.farthest_gradient(one), of_gradients);
      });
      if (HasFailure()) return;
    }
  }
}

/// No batch norm: whole numbers remain whole, but for means over 64 pixels.
Model whole_numbers() {
  const auto relu = tensor::Activation::relu;
  ModelBuilder builder("whole numbers", {1, 8, 8, 3}, 10);
  ValueId x = builder.add("conv1", ConvolutionLayer{.filters = 16, .activation = relu},
                          ModelBuilder::input);
  x = builder.add("conv2", ConvolutionLayer{.filters = 16, .bias = true, .activation = relu}, x);
  x = builder.add("conv3", ConvolutionLayer{.filters = 32, .kernel = 1, .padding = 0}, x);
  x = builder.add("pool", GlobalAveragePoolingLayer{}, x);
  builder.add("fc", FullyConnectedLayer{.outputs = 10}, x);
  return builder.finish();
}

float whole_weight(float drawn) { return std::clamp(std::round(4.0F * drawn), -2.0F, 2.0F); }

// All sums are exact in fp32, and every activation is rounded once, on whichever grid. Logits are
// so far apart that probabilities are 0 and 1, and their gradients -1, 0 and 1.
TEST_F(Bf16GridTrainingTest, WholeNumbersAreExactOnEveryGrid) {
  const Model model = whole_numbers();
  test::Network one(model, {.training_batches = {images}, .precision = tensor::DataType::bf16});
  test::Samples samples = test::make_samples(model, images);
  for (float& value : samples.images) value = std::clamp(std::round(8.0F * value), -8.0F, 8.0F);
  begin(one.layout, one.parameters, one.statistics);
  std::ranges::transform(one.parameters, one.parameters.begin(), whole_weight);
  const double loss = one.train(samples.batch()).sum;
  for (const float gradient : one.parameter("fc.bias", one.gradients)) {
    ASSERT_EQ(gradient, std::round(gradient)) << "logits are too near to each other";
  }
  ASSERT_GT(test::norm(one.parameter("conv1.weight", one.gradients)), 0.0);
  for (const Experiment::Grid& grid : grids("conv2")) {
    const GridChoice choice = choose_grid(model, grid, ranks, images);
    rondo::test::World{ranks}.run([&](transport::World& world) {
      SCOPED_TRACE(name_of(grid));
      GridRank rank(world, model, choice, tensor::DataType::bf16);
      rank.change_parameters(whole_weight);
      EXPECT_EQ(rank.add_up_gradients(samples), loss);
      EXPECT_EQ(rank.farthest_gradient(one), 0.0);
    });
    if (HasFailure()) return;
  }
}

INSTANTIATE_TEST_SUITE_P(Ranks, GridTrainingTest, testing::Values(2, 4, 6, 8));
INSTANTIATE_TEST_SUITE_P(Ranks, SmoothGridTrainingTest, testing::Values(2, 4, 6));

}  // namespace
}  // namespace rondo::train::grid_training_test
