// What a run leaves of its model, and what another begins with.

#include "weights/model_weights.hpp"

#include <cstddef>
#include <mutex>
#include <numeric>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <rondo/train/trainer.hpp>

#include "support/scratch_folder.hpp"
#include "support/world.hpp"
#include "train/error_text.hpp"
#include "train/experiments.hpp"
#include "trainer/agreement.hpp"

namespace rondo::train::weights_test {
namespace {

using rondo::test::error_text;
using testing::HasSubstr;

Experiment tiny(const std::string& model) {
  Experiment experiment;
  experiment.data = {.name = "synthetic", .shape = {8, 8, 3}, .classes = 4};
  experiment.data.training = 64;
  experiment.data.test = 16;
  experiment.model.name = model;
  experiment.train.global_batch = 16;
  return experiment;
}

class WeightsTest : public testing::Test {
 protected:
  std::filesystem::path file() const { return folder_.path() / "run" / "model.safetensors"; }

  // Trains on so many ranks, into the folder; returns rank 0's last metrics.
  EpochMetrics run(const Experiment& experiment, int ranks) const {
    EpochMetrics metrics;
    std::mutex mutex;
    rondo::test::World{ranks}.run([&](transport::World& world) {
      const bool first = world.rank() == 0;
      const EpochMetrics mine =
          train(world, experiment, {.run_folder = first ? folder_.path() / "run" : ""});
      const std::lock_guard lock(mutex);
      if (first) metrics = mine;
    });
    return metrics;
  }

  // The whole model, as the file has it.
  ModelWeights saved(const Experiment& experiment) const {
    const Model model = model_of(experiment, {1, 8, 8, 3}, 4);
    const ParameterLayout layout = layout_of(model);
    ModelWeights weights{std::vector<float>(layout.parameter_count),
                         std::vector<float>(layout.statistic_count)};
    load_weights(file(), layout, weights.parameters, weights.statistics);
    return weights;
  }

  rondo::test::ScratchFolder folder_;
};

TEST_F(WeightsTest, ARunLeavesTheModelThatItEvaluatedLast) {
  const Experiment experiment = tiny("resnet8");

  const EpochMetrics metrics = run(experiment, 2);

  EXPECT_EQ(to_text(hash_of({saved(experiment).parameters})), metrics.parameter_hash);
  const SafetensorsFile opened(file());
  EXPECT_EQ(opened.metadata().at("model"), "resnet8");
  EXPECT_EQ(opened.metadata().at("input"), "[8, 8, 3]");
  ASSERT_NE(opened.find("layer1.0.bn1.running_var"), nullptr);
  EXPECT_THAT(opened.find("layer2.0.conv1.weight")->shape, testing::ElementsAre(32, 16, 3, 3));
}

// With a learning rate of almost nothing a step changes almost nothing.
TEST_F(WeightsTest, ARunBeginsWithTheWeightsOfAnother) {
  Experiment experiment = tiny("resnet8");
  run(experiment, 1);
  const ModelWeights first = saved(experiment);
  experiment.model.weights = folder_.path() / "first.safetensors";
  std::filesystem::rename(file(), experiment.model.weights);
  experiment.train.seed = 7;
  experiment.train.max_steps = 1;
  experiment.optimizer.learning_rate = 1e-30;

  run(experiment, 1);

  EXPECT_EQ(saved(experiment).parameters, first.parameters);
}

// Parts that ranks hold are put together, and cut again, without loss.
TEST_F(WeightsTest, AGridLeavesAndTakesTheWholeModel) {
  Experiment experiment = tiny("resnet8");
  experiment.grid = {.channel = 2, .filter = 2};
  run(experiment, 4);
  const ModelWeights first = saved(experiment);
  experiment.model.weights = folder_.path() / "first.safetensors";
  std::filesystem::rename(file(), experiment.model.weights);
  experiment.train.max_steps = 1;
  experiment.optimizer.learning_rate = 1e-30;
  experiment.grid = {.height = 2};

  run(experiment, 2);

  EXPECT_EQ(saved(experiment).parameters, first.parameters);
}

TEST_F(WeightsTest, RefusesAFileThatIsNotOfTheModel) {
  Experiment experiment = tiny("resnet8");
  run(experiment, 1);
  experiment.model.weights = file();
  Experiment deeper = experiment;
  deeper.model.name = "resnet20";
  Experiment other = experiment;
  other.data.classes = 5;
  Experiment absent = experiment;
  absent.model.weights = folder_.path() / "absent";

  const auto refused = [](const Experiment& wrong, const std::string& text) {
    rondo::test::World{1}.run([&](transport::World& world) {
      EXPECT_THAT(error_text<DataError>([&] { train(world, wrong, {}); }), HasSubstr(text));
    });
  };
  refused(deeper, "model.safetensors: has no tensor \"layer1.1.conv1.weight\"; give the weights");
  refused(other, "the tensor \"fc.weight\" is [4, 64], and the model's is [5, 64]");
  refused(absent, "absent: cannot be opened (No such file or directory)");
}

TEST_F(WeightsTest, LeavesAtItsInitialValuesWhatIsSkipped) {
  Experiment experiment = tiny("resnet8");
  run(experiment, 1);
  const ParameterLayout layout = layout_of(model_of(experiment, {1, 8, 8, 3}, 5));
  std::vector<float> parameters(layout.parameter_count, -7.0F);
  std::vector<float> statistics(layout.statistic_count);

  load_weights(file(), layout, parameters, statistics, std::vector<std::string>{"fc.*"});

  const std::vector<float> trained = saved(experiment).parameters;
  const std::size_t head = layout.blocks.back().offset;
  ASSERT_EQ(layout.blocks.back().name, "fc");
  EXPECT_THAT(std::span(parameters).subspan(head), testing::Each(-7.0F));
  EXPECT_THAT(std::span(parameters).first(head),
              testing::ElementsAreArray(std::span(trained).first(head)));
}

TEST_F(WeightsTest, ARunDrawsAnewWhatItSkips) {
  Experiment experiment = tiny("resnet8");
  run(experiment, 1);
  experiment.model.weights = folder_.path() / "first.safetensors";
  std::filesystem::rename(file(), experiment.model.weights);
  experiment.model.skip = {"fc.*"};
  experiment.data.classes = 5;

  EXPECT_EQ(run(experiment, 2).epoch, 1);
}

// A pattern may mean what only the file has.
TEST_F(WeightsTest, RefusesAPatternThatMatchesNothing) {
  const ParameterLayout layout = layout_of(make_model("lenet5"));
  std::vector<float> values(layout.parameter_count);
  const std::vector<float> one = {1.0F};
  const std::filesystem::path path = folder_.path() / "head.safetensors";
  write_safetensors(path, {{"head.weight", {1}, one}}, {});
  const auto load = [&](const std::vector<std::string>& skip) {
    load_weights(path, layout, values, {}, skip);
  };

  load({"conv*", "fc?.*", "head.weight"});
  EXPECT_THAT(error_text<ConfigError>([&] { load({"conv*", "fc?.*", "head.*", "clasifier.*"}); }),
              HasSubstr("model.skip: \"clasifier.*\" matches no parameter of the model; rondo "
                        "inspect " +
                        path.string()));
}

TEST_F(WeightsTest, PassesOverCountersOfBatchesAndNothingElse) {
  const Model model = make_model("lenet5");
  const ParameterLayout layout = layout_of(model);
  std::vector<float> values(layout.parameter_count);
  std::iota(values.begin(), values.end(), 0.0F);
  const std::vector<float> one = {1.0F};
  std::vector<NamedTensor> tensors{{"bn1.num_batches_tracked", {}, one}};
  for (const Parameter& parameter : layout.parameters) {
    tensors.push_back({parameter.name, parameter.shape,
                       std::span(values).subspan(parameter.offset, parameter.size())});
  }
  const std::filesystem::path path = folder_.path() / "lenet5.safetensors";
  write_safetensors(path, tensors, {});
  std::vector<float> read(values.size());

  load_weights(path, layout, read, {});
  EXPECT_EQ(read, values);

  tensors.push_back({"fc4.weight", {1}, one});
  write_safetensors(path, tensors, {});
  EXPECT_THAT(error_text<DataError>([&] { load_weights(path, layout, read, {}); }),
              HasSubstr("the tensor \"fc4.weight\" belongs to no layer of the model"));
}

}  // namespace
}  // namespace rondo::train::weights_test
