// The running statistics of batch norm on grids, where each rank of a replica measures its own
// part: what they have measured counts once, also where ranks have no images, or statistics come
// from a file.

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <utility>
#include <variant>
#include <vector>

#include <gtest/gtest.h>

#include <rondo/train/experiment.hpp>
#include <rondo/train/grid.hpp>
#include <rondo/train/trainer.hpp>

#include "layers/layer_type.hpp"
#include "support/scratch_folder.hpp"
#include "support/world.hpp"
#include "train/experiments.hpp"
#include "train/resumed_runs.hpp"
#include "trainer/grid_membership.hpp"

namespace rondo::train::grid_statistics_test {
namespace {

using rondo::test::ScratchFolder;
using test::run_in;

Experiment on_grid(Experiment::Grid grid) {
  Experiment experiment = test::small_experiment("lenet5");
  experiment.update.scheme = "synchronous";
  experiment.grid = std::move(grid);
  return experiment;
}

Experiment four_ranks() { return on_grid({.channel = 2, .filter = 2}); }

// Sets the statistics of a rank that has measured the same `mean` and `variance` so often.
void measure(const GridMembership& place, float mean, float variance, int times,
             std::span<float> statistics, float momentum = 0.1F) {
  for (int i = 0; i < times; ++i) place.shared_statistics().count(2, statistics);
  const float kept = std::pow(1.0F - momentum, static_cast<float>(times));
  for (const Parameter& statistic : place.layout().statistics) {
    const bool is_mean = statistic.initial == Initial::zeros;
    for (float& value : statistics.subspan(statistic.offset, statistic.size())) {
      value = is_mean ? (1 - kept) * mean : kept + (1 - kept) * variance;
    }
  }
}

// Three channels are too few for four ranks, so bn1 is by sample, and two images leave the ranks 0
// and 2 without any.
TEST(GridStatisticsTest, StatisticsAreThoseOfTheRanksThatMeasuredThem) {
  const Model model = make_model("resnet8");
  const Experiment experiment = four_ranks();
  rondo::test::World{4}.run([&](transport::World& world) {
    GridMembership place(world, model, experiment);
    place.join();
    ASSERT_EQ(place.shared_statistics().size(), 1U);
    std::vector<float> statistics(place.layout().statistic_count + 1, 0.0F);
    const auto first = [&](std::size_t index) {
      return statistics[place.layout().statistics[index].offset];
    };
    for (const int times : {0, 1, 3}) {
      place.shared_statistics().start(statistics);
      const bool measures = world.rank() % 2 == 1;
      const float mean = world.rank() == 1 ? 10.0F : 20.0F;
      measure(place, mean, mean + 10, measures ? times : 0, statistics);
      if (!measures) place.shared_statistics().count(2, statistics);

      place.average_statistics(statistics);

      const float kept = std::pow(0.9F, static_cast<float>(times));
      EXPECT_NEAR(first(0), (1 - kept) * 15, 1e-5) << times;
      EXPECT_NEAR(first(1), kept + (1 - kept) * 25, 1e-5) << times;
    }
  });
}

/// A rank's first mean, where it has measured `mean` so often and all ranks have then averaged.
float averaged_mean(transport::World& world, const Model& model, const Experiment& experiment,
                    float mean, int times, float momentum = 0.1F) {
  GridMembership place(world, model, experiment);
  place.join();
  std::vector<float> statistics(place.layout().statistic_count + place.shared_statistics().size(),
                                0.0F);
  place.shared_statistics().start(statistics);
  measure(place, mean, 10, times, statistics, momentum);
  place.average_statistics(statistics);
  return statistics.front();
}

TEST(GridStatisticsTest, WhoHasMeasuredLittleCountsLittle) {
  const Model model = make_model("resnet8");
  const Experiment experiment = on_grid({.height = 2});
  rondo::test::World{2}.run([&](transport::World& world) {
    const int times = world.rank() == 0 ? 1 : 8;
    const float kept = std::pow(0.9F, 8.0F);  // as if both had measured eight times
    EXPECT_NEAR(averaged_mean(world, model, experiment, 10, times), (1 - kept) * 10, 1e-5);
  });
}

// The ranks 0 and 2 have no images of bn1, as above, but values of a file.
TEST(GridStatisticsTest, StatisticsThatWereTakenWeighNothingOnRanksWithoutImages) {
  const Model model = make_model("resnet8");
  const Experiment experiment = four_ranks();
  rondo::test::World{4}.run([&](transport::World& world) {
    GridMembership place(world, model, experiment);
    place.join();
    const std::size_t count = place.layout().statistic_count;
    std::vector<float> statistics(count + place.shared_statistics().size(), 8.0F);
    place.shared_statistics().start_from_taken(std::array<std::int64_t, 2>{2, 1}, statistics);

    std::vector<float> means = statistics;
    place.average_statistics(means);
    EXPECT_EQ(means.front(), 8.0F);

    if (world.rank() % 2 == 1) statistics.front() = 4.0F;  // the ranks that measure
    place.average_statistics(statistics);
    EXPECT_EQ(statistics.front(), 4.0F);
  });
}

// The ranks of each of two pairs hold the same channels, of two tiles.
TEST(GridStatisticsTest, StatisticsOfTilesAreThoseOfTheirChannels) {
  const Model model = make_model("resnet8");
  const Experiment experiment = on_grid({.filter = 2, .height = 2});
  rondo::test::World{4}.run([&](transport::World& world) {
    const float mean = 10.0F * static_cast<float>(world.rank() + 1);
    EXPECT_NEAR(averaged_mean(world, model, experiment, mean, 1),
                0.1 * (world.rank() % 2 == 0 ? 20 : 30), 1e-5);
  });
}

// After two measurements a fourth of the initial values is left, and not 81 of 100.
TEST(GridStatisticsTest, StatisticsMoveByTheMomentumOfTheModelsBatchNorm) {
  constexpr float momentum = 0.5F;
  Model model = make_model("resnet8");
  for (LayerSpec& layer : model.layers) {
    const auto* norm = layer.kind.get_if<BatchNormLayer>();
    if (norm == nullptr) continue;
    BatchNormLayer changed = *norm;
    changed.momentum = momentum;
    layer.kind = changed;
  }
  const Experiment experiment = on_grid({.height = 2});
  rondo::test::World{2}.run([&](transport::World& world) {
    const int times = world.rank() == 0 ? 0 : 2;
    EXPECT_NEAR(averaged_mean(world, model, experiment, 10, times, momentum), 0.75F * 10, 1e-5);
  });
}

TEST(GridStatisticsTest, KernelsMoveStatisticsByTheMomentumOfTheModelsBatchNorm) {
  const LayerKind norm = BatchNormLayer{.momentum = 0.5F};
  EXPECT_EQ(std::get<tensor::BatchNormSpec>(norm->spec({1, 2, 2, 3})).momentum, 0.5F);
}

// So slow that the model remains the same, and its test loss tells the statistics. Variances on
// four ranks are those of one image, not of two: that makes half a thousandth, initial values make
// seven.
class SlowRunTest : public testing::Test {
 protected:
  SlowRunTest() {
    experiment_ = parse_experiment(
        "data.name = 'synthetic'\n[model]\nname = 'custom'\ninput = [8, 8, 2]\nclasses = 3\n"
        "layers = [{kind = 'convolution', name = 'conv', filters = 4, kernel = 1},"
        "{kind = 'batch_norm', name = 'bn'},"
        "{kind = 'fully_connected', name = 'fc', outputs = 3}]\n",
        "e");
    const Experiment usual = test::small_experiment("lenet5");
    experiment_.data = usual.data;
    experiment_.train = usual.train;
    experiment_.optimizer = usual.optimizer;
    experiment_.update.warmup_epochs = 0.0;
    experiment_.train.global_batch = 2;
    experiment_.optimizer.learning_rate = 1e-9;
    experiment_.train.max_steps = 40;
    alone_ = run_in(folder_.path(), 1, experiment_).last.test_loss;
  }

  // Two of the four ranks of a replica never have an image.
  void expect_same_on_four(const std::filesystem::path& resume = {}) {
    experiment_.grid = {.channel = 2, .filter = 2};
    const ScratchFolder other;
    const double loss = run_in(other.path(), 4, experiment_, resume).last.test_loss;
    EXPECT_NEAR(loss, alone_, 0.002 * alone_);
  }

  ScratchFolder folder_;
  Experiment experiment_;
  double alone_ = 0.0;
};

TEST_F(SlowRunTest, RanksWithoutImagesLeaveEvaluationAlone) { expect_same_on_four(); }

TEST_F(SlowRunTest, AndStatisticsOfAFile) {
  experiment_.model.weights = (folder_.path() / "model.safetensors").string();
  expect_same_on_four();
}

TEST_F(SlowRunTest, AndThoseOfACheckpointOfOtherRanks) {
  experiment_.checkpoint.every_steps = 1;
  experiment_.train.max_steps = 1;
  const ScratchFolder begun;
  run_in(begun.path(), 1, experiment_);
  experiment_.train.max_steps = 40;

  expect_same_on_four(begun.path());
}

}  // namespace
}  // namespace rondo::train::grid_statistics_test
