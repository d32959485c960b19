// Parameters: how they begin, their hash, and the files of models that hold them.

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <fstream>
#include <limits>
#include <mutex>
#include <numeric>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <rondo/train/dataset.hpp>
#include <rondo/train/model.hpp>
#include <rondo/train/predictor.hpp>
#include <rondo/train/trainer.hpp>
#include <rondo/train/weights.hpp>

#include "support/error_text.hpp"
#include "support/scratch_folder.hpp"
#include "support/world.hpp"
#include "train/experiments.hpp"
#include "weights/checksum.hpp"
#include "weights/model_weights.hpp"
#include "weights/safetensors.hpp"

namespace rondo::train::weights_test {
namespace {

using rondo::test::error_text;
using testing::ElementsAre;
using testing::ElementsAreArray;
using testing::HasSubstr;

// Initial parameters depend on (seed, name, element) and nothing else.

Parameter he_parameter() {
  return {.name = "conv.weight",
          .shape = {64, 16, 3, 3},
          .initial = Initial::he_normal,
          .fan_in = 144,
          .fan_out = 576};
}

std::vector<float> draw(const Parameter& parameter, std::uint64_t seed) {
  std::vector<float> values(parameter.size());
  draw_initial(parameter, seed, 0, values);
  return values;
}

double mean_of(const std::vector<float>& values) {
  double sum = 0.0;
  for (const float value : values) sum += static_cast<double>(value);
  return sum / static_cast<double>(values.size());
}

double deviation_of(const std::vector<float>& values) {
  const double mean = mean_of(values);
  double sum = 0.0;
  for (const float value : values) sum += std::pow(static_cast<double>(value) - mean, 2.0);
  return std::sqrt(sum / static_cast<double>(values.size()));
}

TEST(InitialValuesTest, DrawsAnyPartAlone) {
  const Parameter parameter = he_parameter();
  const std::vector<float> whole = draw(parameter, 7);

  for (const std::size_t first : {0U, 1U, 3U, 4U, 5U, 1002U}) {
    for (const std::size_t count : {0U, 1U, 2U, 7U, 64U}) {
      std::vector<float> part(count);
      draw_initial(parameter, 7, first, part);

      EXPECT_TRUE(
          std::equal(part.begin(), part.end(), whole.begin() + static_cast<std::ptrdiff_t>(first)))
          << first << " " << count;
    }
  }
}

TEST(InitialValuesTest, ChangesWithTheSeedAndTheName) {
  Parameter renamed = he_parameter();
  renamed.name = "other.weight";
  EXPECT_NE(draw(he_parameter(), 1), draw(he_parameter(), 2));
  EXPECT_NE(draw(he_parameter(), 1), draw(renamed, 1));
  EXPECT_EQ(draw(he_parameter(), 1), draw(he_parameter(), 1));
}

TEST(InitialValuesTest, DrawsHeNormalWithTheVarianceOfFanOut) {
  constexpr double tolerance = 0.03;  // three standard errors of 9,216 draws
  const std::vector<float> values = draw(he_parameter(), 3);
  const double deviation = std::sqrt(2.0 / 576.0);
  EXPECT_NEAR(mean_of(values) / deviation, 0.0, tolerance);
  EXPECT_NEAR(deviation_of(values) / deviation, 1.0, tolerance);
}

TEST(InitialValuesTest, DrawsUniformWithinTheBoundOfFanIn) {
  Parameter parameter = he_parameter();
  parameter.initial = Initial::uniform_fan_in;
  constexpr double bound = 1.0 / 12.0;  // 1 / sqrt(144)
  constexpr double tolerance = 0.03;
  const std::vector<float> values = draw(parameter, 3);
  EXPECT_THAT(values, testing::Each(testing::AllOf(testing::Gt(-bound), testing::Lt(bound))));
  EXPECT_NEAR(deviation_of(values) / (bound / std::sqrt(3.0)), 1.0, tolerance);
}

TEST(InitialValuesTest, BeginsBatchNormAsTheIdentity) {
  Model model{.name = "norm", .input = {1, 1, 1, 2}, .classes = 2};
  model.layers = {{"bn", BatchNormLayer{}, {0}}};
  const ParameterLayout layout = layout_of(model);
  std::vector<float> parameters(layout.parameter_count, 9.0F);
  std::vector<float> statistics(layout.statistic_count, 9.0F);
  initialize(layout, 1, parameters, statistics);
  EXPECT_THAT(parameters, ElementsAreArray({1.0F, 1.0F, 0.0F, 0.0F}));
  EXPECT_THAT(statistics, ElementsAreArray({0.0F, 0.0F, 1.0F, 1.0F}));
}

TEST(InitialValuesTest, RefusesArraysOfTheWrongSize) {
  const ParameterLayout layout = layout_of(make_model("lenet5"));
  std::vector<float> parameters(layout.parameter_count - 1);
  EXPECT_THROW(initialize(layout, 1, parameters, {}), std::invalid_argument);
}

// The hash by which ranks and runs are compared.

TEST(ParameterHashTest, IsXxh3OfOneHundredAndTwentyEightBits) {
  EXPECT_EQ(hash_of({}), "99aa06d3014798d86001c324468d497f");  // the published value
  const std::vector<float> all{1.0F, 2.0F, 3.0F};
  const auto span = std::span(all);
  EXPECT_EQ(hash_of({span.first(1), span.last(2)}), hash_of({span})) << "one after the other";
  const std::vector<float> zero{0.0F};
  const std::vector<float> minus{-0.0F};
  EXPECT_NE(hash_of({zero}), hash_of({minus})) << "a single bit";
}

// The model that a run leaves, and the model from which another run begins.

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
    load_weights(SafetensorsFile(file()), layout, weights.parameters, weights.statistics);
    return weights;
  }

  rondo::test::ScratchFolder folder_;
};

TEST_F(WeightsTest, ARunLeavesTheModelThatItEvaluatedLast) {
  const Experiment experiment = tiny("resnet8");
  const EpochMetrics metrics = run(experiment, 2);
  EXPECT_EQ(hash_of({saved(experiment).parameters}), metrics.parameter_hash);
  const SafetensorsFile opened(file());
  EXPECT_EQ(opened.metadata().at("model"), "resnet8");
  EXPECT_EQ(opened.metadata().at("input"), "[8, 8, 3]");
  ASSERT_NE(opened.find("layer1.0.bn1.running_var"), nullptr);
  EXPECT_THAT(opened.find("layer2.0.conv1.weight")->shape, testing::ElementsAre(32, 16, 3, 3));
}

// Parts that ranks hold are put together, and cut again, without loss. With a learning rate of
// almost nothing a step changes almost nothing.
TEST_F(WeightsTest, ARunBeginsWithTheModelThatAnotherGridHasLeft) {
  Experiment experiment = tiny("resnet8");
  experiment.grid = {.channel = 2, .filter = 2};
  run(experiment, 4);
  const ModelWeights first = saved(experiment);
  experiment.model.weights = folder_.path() / "first.safetensors";
  std::filesystem::rename(file(), experiment.model.weights);
  experiment.train.seed = 7;
  experiment.train.max_steps = 1;
  experiment.optimizer.learning_rate = 1e-30;
  experiment.grid = {.height = 2};

  run(experiment, 2);

  EXPECT_EQ(saved(experiment).parameters, first.parameters);
}

TEST_F(WeightsTest, LeavesAtItsInitialValuesWhatIsSkipped) {
  Experiment experiment = tiny("resnet8");
  run(experiment, 1);
  const ParameterLayout layout = layout_of(model_of(experiment, {1, 8, 8, 3}, 5));
  std::vector<float> parameters(layout.parameter_count, -7.0F);
  std::vector<float> statistics(layout.statistic_count);

  load_weights(SafetensorsFile(file()), layout, parameters, statistics,
               std::vector<std::string>{"fc.*"});

  const std::vector<float> trained = saved(experiment).parameters;
  const std::size_t head = layout.blocks.back().offset;
  ASSERT_EQ(layout.blocks.back().name, "fc");
  EXPECT_THAT(std::span(parameters).subspan(head), testing::Each(-7.0F));
  EXPECT_THAT(std::span(parameters).first(head),
              testing::ElementsAreArray(std::span(trained).first(head)));
}

// A pattern may mean what only the file has.
TEST_F(WeightsTest, RefusesAPatternThatMatchesNothing) {
  const ParameterLayout layout = layout_of(make_model("lenet5"));
  std::vector<float> values(layout.parameter_count);
  const std::vector<float> one = {1.0F};
  const std::filesystem::path path = folder_.path() / "head.safetensors";
  write_safetensors(path, {{"head.weight", {1}, one}}, {});
  const auto load = [&](const std::vector<std::string>& skip) {
    load_weights(SafetensorsFile(path), layout, values, {}, skip);
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

  load_weights(SafetensorsFile(path), layout, read, {});
  EXPECT_EQ(read, values);

  tensors.push_back({"fc4.weight", {1}, one});
  write_safetensors(path, tensors, {});
  EXPECT_THAT(error_text<DataError>([&] { load_weights(SafetensorsFile(path), layout, read, {}); }),
              HasSubstr("the tensor \"fc4.weight\" belongs to no layer of the model"));
}

// A tensor that is left out may hold anything.
TEST_F(WeightsTest, RefusesTensorsThatAreNotFiniteByName) {
  const Experiment experiment = tiny("resnet8");
  const Model model = model_of(experiment, {1, 8, 8, 3}, 4);
  const ParameterLayout layout = layout_of(model);
  const ModelWeights whole{std::vector<float>(layout.parameter_count),
                           std::vector<float>(layout.statistic_count)};
  const std::filesystem::path path = folder_.path() / "broken.safetensors";
  Experiment from_it = experiment;
  from_it.model.weights = path;
  using Limits = std::numeric_limits<float>;
  for (const float bad : {Limits::quiet_NaN(), Limits::infinity(), -Limits::infinity()}) {
    ModelWeights weights = whole;
    weights.parameters.back() = bad;
    save_weights(path, model, load_dataset(experiment.data, {}, 0), weights);

    const auto refused = HasSubstr(path.string() + ": the tensor \"fc.bias\" contains NaN or Inf");
    EXPECT_THAT(error_text<DataError>([&] { (void)load_trained(model, path); }), refused);
    rondo::test::World{2}.run([&](transport::World& world) {
      EXPECT_THAT(error_text<DataError>([&] { train(world, from_it, {}); }), refused);
    });
    load_weights(SafetensorsFile(path), layout, weights.parameters, weights.statistics,
                 std::vector<std::string>{"fc.*"});

    weights = whole;
    weights.statistics.front() = bad;
    save_weights(path, model, load_dataset(experiment.data, {}, 0), weights);
    EXPECT_THAT(error_text<DataError>([&] { (void)load_trained(model, path); }),
                HasSubstr("\"bn1.running_mean\" contains NaN or Inf"));
  }
}

// One bit of a weight changed what a model says, and nothing told.
TEST_F(WeightsTest, RefusesAFileWhoseValuesWereChanged) {
  const Model model = make_model("lenet5");
  const std::filesystem::path path = folder_.path() / "damaged.safetensors";
  const auto layout = layout_of(model);
  ModelWeights weights{std::vector<float>(layout.parameter_count), {}};
  std::iota(weights.parameters.begin(), weights.parameters.end(), 1.0F);
  save_weights(path, model, {.name = "any", .mean = {0.0F}, .stddev = {1.0F}}, weights);
  EXPECT_EQ(load_trained(model, path).parameters, weights.parameters);
  const std::string whole = rondo::test::contents(path);
  const std::size_t first = whole.size() - weights.parameters.size() * sizeof(float);
  for (std::size_t place = first; place < whole.size(); place += whole.size() / 23) {
    for (const std::size_t at : {place, whole.size() - 1 - (place - first)}) {
      std::string damaged = whole;
      damaged[at] = static_cast<char>(damaged[at] ^ 0x10);
      std::ofstream(path, std::ios::binary) << damaged;

      const auto refused = HasSubstr(path.string() + ": its tensors are damaged");
      EXPECT_THAT(error_text<DataError>([&] { (void)load_trained(model, path); }), refused) << at;
      EXPECT_THAT(error_text<DataError>([&] { (void)summarize_weights(path); }), refused) << at;
    }
  }

  // Files of other programs, and of older ones, say nothing of their values.
  std::string unsaid = whole;
  unsaid.replace(unsaid.find(values_checksum_key), 6, "other.");
  unsaid.back() = static_cast<char>(unsaid.back() ^ 1);
  std::ofstream(path, std::ios::binary) << unsaid;
  EXPECT_NE(load_trained(model, path).parameters, weights.parameters);
}

// Wrappers of PyTorch put a word before all names.
TEST_F(WeightsTest, LeavesOutAPrefixThatAllNamesShare) {
  const ParameterLayout layout = layout_of(make_model("lenet5"));
  std::vector<float> values(layout.parameter_count);
  std::iota(values.begin(), values.end(), 0.0F);
  const std::filesystem::path path = folder_.path() / "torch.safetensors";
  const auto write = [&](const std::string& prefix, const TensorMetadata& metadata) {
    std::vector<NamedTensor> tensors;
    for (const Parameter& parameter : layout.parameters) {
      tensors.push_back({prefix + parameter.name, parameter.shape,
                         std::span(values).subspan(parameter.offset, parameter.size())});
    }
    write_safetensors(path, tensors, metadata);
  };
  for (const char* prefix : {"module.", "_orig_mod.", "model.", "module._orig_mod."}) {
    write(prefix, {});
    std::vector<float> read(values.size());
    load_weights(SafetensorsFile(path), layout, read, {});

    EXPECT_EQ(read, values);
    EXPECT_THAT(note_of_weights(path),
                HasSubstr(": all names begin with \"" + std::string(prefix) + "\", which"));
  }
  write("", {});
  EXPECT_EQ(note_of_weights(path), "");
  write("other.", {});
  EXPECT_THAT(error_text<DataError>([&] { expect_weights(SafetensorsFile(path), layout); }),
              HasSubstr("has no tensor \"conv1.weight\""));
  // A file of Rondo's own has the names of its model.
  write("model.", {{"model", "custom"}});
  EXPECT_EQ(note_of_weights(path), "");
}

}  // namespace
}  // namespace rondo::train::weights_test
