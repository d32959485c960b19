// Models that have been trained: evaluated, asked about images, and exported.

#include <rondo/train/inference.hpp>

#include <fstream>
#include <mutex>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <rondo/tensor/engine.hpp>
#include <rondo/train/executor.hpp>
#include <rondo/train/trainer.hpp>
#include <rondo/train/weights.hpp>

#include "data/image_writer.hpp"
#include "support/error_text.hpp"
#include "support/scratch_folder.hpp"
#include "support/world.hpp"
#include "weights/model_weights.hpp"

namespace rondo::train::inference_test {
namespace {

using rondo::test::contents;
using rondo::test::error_text;
using testing::HasSubstr;

Experiment tiny() {
  Experiment experiment;
  experiment.data = {.name = "synthetic", .shape = {8, 8, 3}, .classes = 4};
  experiment.data.training = 64;
  experiment.data.test = 50;
  experiment.model.name = "resnet8";
  experiment.train.global_batch = 16;
  return experiment;
}

class InferenceTest : public testing::Test {
 protected:
  std::filesystem::path file() const { return folder_.path() / "model.safetensors"; }

  // Trains on so many ranks, and leaves the model in file().
  EpochMetrics train_on(int ranks, const Experiment& experiment) const {
    EpochMetrics metrics;
    rondo::test::World{ranks}.run([&](transport::World& world) {
      const bool first = world.rank() == 0;
      const EpochMetrics mine =
          train(world, experiment, {.run_folder = first ? folder_.path() : ""});
      if (first) metrics = mine;
    });
    return metrics;
  }

  // The result of rank 0; all ranks have the same.
  TestResult evaluated_on(int ranks, const Experiment& experiment) const {
    TestResult result;
    std::mutex mutex;
    rondo::test::World{ranks}.run([&](transport::World& world) {
      const TestResult mine = evaluate(world, experiment, file());
      const std::lock_guard lock(mutex);
      if (world.rank() == 0) result = mine;
    });
    return result;
  }

  // The model's weights as PyTorch has them: with counters, and without metadata of ours.
  std::filesystem::path as_pytorch_has_them(const Experiment& experiment) const {
    const ParameterLayout layout = layout_of(model_of(experiment, {1, 8, 8, 3}, 4));
    std::vector<float> parameters(layout.parameter_count);
    std::vector<float> statistics(layout.statistic_count);
    load_weights(SafetensorsFile(file()), layout, parameters, statistics);
    const std::vector<float> count = {3.0F};
    std::vector<NamedTensor> tensors{{"bn1.num_batches_tracked", {}, count}};
    for (const Parameter& one : layout.parameters) {
      tensors.push_back(
          {one.name, one.shape, std::span(parameters).subspan(one.offset, one.size())});
    }
    for (const Parameter& one : layout.statistics) {
      tensors.push_back(
          {one.name, one.shape, std::span(statistics).subspan(one.offset, one.size())});
    }
    write_safetensors(folder_.path() / "torch.safetensors", tensors, {{"format", "pt"}});
    return folder_.path() / "torch.safetensors";
  }

  rondo::test::ScratchFolder folder_;
};

// The order of summation differs, and so do the last digits of the loss.
TEST_F(InferenceTest, FindsWhatTheRunFoundForAnyNumberOfRanks) {
  const EpochMetrics trained = train_on(2, tiny());

  for (const int ranks : {1, 2, 3}) {
    const TestResult result = evaluated_on(ranks, tiny());

    EXPECT_EQ(result.images, 50);
    EXPECT_EQ(result.accuracy, trained.accuracy) << ranks;
    EXPECT_NEAR(result.loss, trained.test_loss, 1e-5) << ranks;
  }
}

// Replicas hold the same; the ranks of one hold parts.
TEST_F(InferenceTest, PutsTheModelOfACheckpointTogether) {
  const std::vector<std::pair<int, Experiment::Grid>> jobs = {
      {1, {}}, {2, {}}, {4, {.channel = 2, .filter = 2}}, {4, {.filter = 2, .height = 2}}};
  for (const auto& [ranks, grid] : jobs) {
    std::filesystem::remove_all(folder_.path() / "checkpoints");
    std::filesystem::remove(folder_.path() / "metrics.jsonl");
    Experiment experiment = tiny();
    experiment.grid = grid;
    experiment.checkpoint.every_epochs = 1;
    train_on(ranks, experiment);
    const std::filesystem::path out = folder_.path() / "out.safetensors";

    export_weights(experiment, find_checkpoint(folder_.path(), "best"), out);

    EXPECT_EQ(contents(out), contents(file())) << ranks;
  }
}

TEST_F(InferenceTest, JudgesTheWholeModelOfAGridWithoutOne) {
  Experiment experiment = tiny();
  experiment.grid = {.channel = 2, .filter = 2};
  const EpochMetrics trained = train_on(4, experiment);

  const TestResult result = evaluated_on(2, experiment);

  EXPECT_EQ(result.accuracy, trained.accuracy);
  EXPECT_NEAR(result.loss, trained.test_loss, 1e-4);
}

TEST_F(InferenceTest, LeavesRanksWithoutAnImageOut) {
  Experiment experiment = tiny();
  train_on(1, experiment);
  experiment.data.test = 2;

  EXPECT_EQ(evaluated_on(3, experiment).images, 2);
}

TEST_F(InferenceTest, GivesTheLogitsOfTheTrainedModel) {
  train_on(1, tiny());
  const Model model = model_of(tiny(), {1, 8, 8, 3}, 4);
  const Dataset dataset = load_dataset(tiny().data, {}, 0);
  const std::span pixels = std::span(dataset.test.pixels).first(8 * 8 * 3);
  const auto image =
      folder_.write("image.ppm", "P6 8 8 255\n" + std::string(pixels.begin(), pixels.end()));
  Classifier classifier(tiny(), file());

  const std::vector<float> logits = classifier.logits(image);

  const ParameterLayout layout = layout_of(model);
  std::vector<float> parameters(layout.parameter_count);
  std::vector<float> statistics(layout.statistic_count);
  load_weights(SafetensorsFile(file()), layout, parameters, statistics);
  tensor::Engine engine;
  Executor executor(engine, model, {.parameters = parameters, .statistics = statistics},
                    {.evaluation_batch = 1});
  std::vector<float> normalised(pixels.size());
  ImageWriter(dataset.mean, dataset.stddev).write(pixels.data(), 8 * 8, normalised.data());
  const std::vector<std::int32_t> label = {0};
  executor.evaluate({1, normalised, label}, parameters, statistics);
  // Folded batch norms round otherwise.
  EXPECT_THAT(logits, testing::Pointwise(testing::FloatNear(1e-4F), executor.logits()));
  EXPECT_EQ(classifier.model().classes, 4);
}

TEST_F(InferenceTest, NormalisesAsTheFileSaysAndElseAsTheDataDo) {
  train_on(1, tiny());
  const auto image = folder_.write("image.ppm", "P6 8 8 255\n" + std::string(192, 'x'));
  const auto torch = as_pytorch_has_them(tiny());
  Experiment others = tiny();
  others.data.training = 16;  // other images, other mean

  const auto own = Classifier(tiny(), file()).logits(image);

  EXPECT_EQ(Classifier(others, file()).logits(image), own);
  EXPECT_EQ(Classifier(tiny(), torch).logits(image), own);
  EXPECT_NE(Classifier(others, torch).logits(image), own);
}

/// A data set of single-coloured images in folders of these classes, in the order of their names.
Experiment of_folders(const rondo::test::ScratchFolder& data,
                      const std::vector<std::string>& classes, int brightness) {
  for (std::size_t label = 0; label < classes.size(); ++label) {
    const auto colour = static_cast<char>(brightness + 40 * static_cast<int>(label));
    for (const char* part : {"train", "val"}) {
      const std::filesystem::path folder = data.path() / part / classes[label];
      std::filesystem::create_directories(folder);
      for (const char* image : {"1.ppm", "2.ppm", "3.ppm", "4.ppm"}) {
        std::ofstream(folder / image) << "P6 8 8 255\n" << std::string(192, colour);
      }
    }
  }
  Experiment experiment = tiny();
  experiment.data = {.name = "folder", .path = data.path().string(), .image_size = 8};
  experiment.train.global_batch = 8;
  experiment.checkpoint.every_epochs = 1;
  return experiment;
}

// The order of names is that of labels: what was a cat must not count as a beagle.
TEST_F(InferenceTest, KnowsImagesAndClassesAsInTraining) {
  const rondo::test::ScratchFolder trained;
  const rondo::test::ScratchFolder changed;
  const rondo::test::ScratchFolder renamed;
  const Experiment experiment = of_folders(trained, {"cat", "dog"}, 20);
  const Experiment same_names = of_folders(changed, {"cat", "dog"}, 60);
  const Experiment other_names = of_folders(renamed, {"beagle", "cat"}, 20);
  const double accuracy = train_on(1, experiment).accuracy;
  const auto checkpoint = find_checkpoint(folder_.path(), "newest");
  const std::filesystem::path out = folder_.path() / "out.safetensors";

  for (const Experiment& data : {same_names, other_names}) {
    export_weights(data, checkpoint, out);
    EXPECT_EQ(contents(out), contents(file()));
    EXPECT_THAT(Classifier(data, checkpoint).class_names(), testing::ElementsAre("cat", "dog"));
  }
  rondo::test::World{1}.run([&](transport::World& world) {
    EXPECT_EQ(evaluate(world, experiment, checkpoint).accuracy, accuracy);
    for (const auto& weights : {file(), checkpoint}) {
      EXPECT_THAT(
          error_text<DataError>([&] { static_cast<void>(evaluate(world, other_names, weights)); }),
          HasSubstr("its class 0 is \"beagle\", and that of the model is \"cat\""));
    }
  });
}

// The data may be on another machine: a checkpoint says what its model needs to know of them.
TEST_F(InferenceTest, TakesACheckpointWithoutTheData) {
  const Experiment experiment = [&] {
    const rondo::test::ScratchFolder data;
    const Experiment of_data = of_folders(data, {"cat", "dog"}, 20);
    train_on(1, of_data);
    return of_data;
  }();
  ASSERT_FALSE(std::filesystem::exists(experiment.data.path));
  const auto checkpoint = find_checkpoint(folder_.path(), "newest");
  const std::filesystem::path out = folder_.path() / "out.safetensors";

  export_weights(experiment, checkpoint, out);

  EXPECT_EQ(contents(out), contents(file()));
  EXPECT_THAT(Classifier(experiment, checkpoint).class_names(), testing::ElementsAre("cat", "dog"));
}

TEST_F(InferenceTest, ExportsTheSameBytesAgain) {
  train_on(1, tiny());
  const auto torch = as_pytorch_has_them(tiny());
  const std::filesystem::path out = folder_.path() / "exported.safetensors";

  export_weights(tiny(), file(), out);
  EXPECT_EQ(contents(out), contents(file()));

  export_weights(tiny(), torch, out);
  EXPECT_EQ(contents(out), contents(file()));
}

// Its metadata ask for a layer of 129 GB.
TEST_F(InferenceTest, TakesNoMemoryForWhatAFileDoesNotHold) {
  Experiment experiment = tiny();
  experiment.model.name = "lenet5";
  write_safetensors(file(), {},
                    {{"data", "synthetic"},
                     {"input", "[16384, 16384, 1]"},
                     {"classes", "4"},
                     {"mean", "[0.5]"},
                     {"stddev", "[0.25]"}});

  EXPECT_THAT(error_text<DataError>([&] { Classifier(experiment, file()); }),
              HasSubstr("has no tensor \"conv1.weight\""));
}

TEST_F(InferenceTest, RefusesImpossibleMetadata) {
  const std::filesystem::path path = folder_.path() / "wrong.safetensors";
  const auto refused = [&](const std::string& key, const std::string& value) {
    TensorMetadata metadata = {{"data", "synthetic"},
                               {"input", "[8, 8, 1]"},
                               {"classes", "4"},
                               {"mean", "[0.5]"},
                               {"stddev", "[0.25]"}};
    metadata[key] = value;
    write_safetensors(path, {}, metadata);
    return error_text<DataError>([&] { Classifier(tiny(), path); });
  };

  for (const char* names : {"[]", "[1, 2]", "cat", "{\"a\": \"b\"}"}) {
    EXPECT_THAT(refused("class_names", names), HasSubstr("names as class_names")) << names;
  }
  for (const auto& [key, value] : {std::pair{"input", "[8, 8]"},
                                   {"input", "[8, 8, 1.5]"},
                                   {"input", "8 x 8"},
                                   {"classes", "0"},
                                   {"mean", "[0.5, 0.5]"},
                                   {"mean", "[1e300]"},
                                   {"stddev", "[0]"},
                                   {"stddev", "[1e-300]"}}) {
    EXPECT_THAT(refused(key, value),
                HasSubstr(std::string("its metadata says that ") + key + " is " + value));
  }
  EXPECT_THAT(refused("classes", "[\"a\"]"), HasSubstr("says that classes is"));
}

}  // namespace
}  // namespace rondo::train::inference_test
