// A program's own parts: in a run, when they are refused, and when the run is resumed.

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <rondo/sync/update_scheme.hpp>
#include <rondo/train/layer_type.hpp>
#include <rondo/train/loader.hpp>
#include <rondo/train/predictor.hpp>
#include <rondo/train/trainer.hpp>
#include <rondo/train/weights.hpp>

#include "support/error_text.hpp"
#include "support/scratch_folder.hpp"
#include "support/world.hpp"
#include "train/resumed_runs.hpp"
#include "train/support/own_layer.hpp"

namespace rondo::train::own_parts_test {
namespace {

namespace fs = std::filesystem;

using rondo::test::contents;
using rondo::test::error_text;
using rondo::test::ScratchFolder;
using rondo::test::World;
using test::expect_refusal;
using test::train_once;
using testing::Contains;
using testing::HasSubstr;
using testing::StartsWith;

// Images of one grey level each; the class is dark or bright.
Images shades(std::int64_t count) {
  Images images{.shape = {count, 8, 8, 1}};
  for (std::int64_t i = 0; i < count; ++i) {
    const auto label = static_cast<std::int32_t>(i % 2);
    images.labels.push_back(label);
    for (int pixel = 0; pixel < 8 * 8; ++pixel) {
      images.pixels.push_back(static_cast<std::uint8_t>(60 + 120 * label + pixel));
    }
  }
  return images;
}

Dataset make_shades(std::int64_t count = 64) {
  return {.name = "shades",
          .classes = 2,
          .training = shades(count),
          .test = shades(16),
          .mean = {0.5F},
          .stddev = {0.25F}};
}

// Moves images by one row, downwards; the first row becomes zero.
class ShiftKernel final : public OneForwardKernel {
 public:
  void backward_parameters(const BackwardOperands& /*operands*/) override {}
  void backward_input(const BackwardOperands& b) override {
    for_each_image(b.dy.shape, [&](std::int64_t first, std::int64_t row, std::int64_t size) {
      const float* dy = b.dy.as<float>().data + first;
      float* dx = b.dx.as<float>().data + first;
      std::copy(dy + row, dy + size, dx);
      std::fill(dx + size - row, dx + size, 0.0F);
    });
  }

 private:
  void forward(const ForwardOperands& f) override {
    for_each_image(f.y.shape, [&](std::int64_t first, std::int64_t row, std::int64_t size) {
      const float* x = f.x.as<float>().data + first;
      float* y = f.y.as<float>().data + first;
      std::fill(y, y + row, 0.0F);
      std::copy(x, x + size - row, y + row);
    });
  }
  template <typename Visit>
  static void for_each_image(const tensor::Shape& shape, Visit visit) {
    for (std::int64_t n = 0; n < shape.n; ++n) {
      visit(n * shape.image(), shape.w * shape.c, shape.image());
    }
  }
};

Model with_shift(test::OwnLayer shift) {
  shift.text = "shift";
  shift.kernel = [](auto&, auto&) { return std::make_unique<ShiftKernel>(); };
  ModelBuilder builder("shifted", {1, 8, 8, 1}, 2);
  ValueId x = builder.add("conv1", ConvolutionLayer{.filters = 4}, ModelBuilder::input);
  x = builder.add("shift", shift, x);
  x = builder.add("conv2", ConvolutionLayer{.filters = 4}, x);
  builder.add("fc", FullyConnectedLayer{.outputs = 2}, x);
  return builder.finish();
}

Model small_model(const std::string& second = "fc2") {
  ModelBuilder builder("own", {1, 8, 8, 1}, 2);
  const ValueId x = builder.add("fc1", FullyConnectedLayer{.outputs = 4}, ModelBuilder::input);
  builder.add(second, FullyConnectedLayer{.outputs = 2}, x);
  return builder.finish();
}

// Names are those of a program: no configuration could choose them.
Experiment experiment() {
  Experiment experiment;
  experiment.data.name = "shades";
  experiment.model.name = "own";
  experiment.train.global_batch = 16;
  experiment.train.epochs = 2;
  experiment.optimizer.learning_rate = 0.02;
  experiment.checkpoint.every_steps = 3;
  return experiment;
}

class OwnPartsTest : public testing::Test {
 protected:
  Dataset dataset = make_shades();
  Model model = small_model();
  ScratchFolder folder;
};

TEST_F(OwnPartsTest, ARunGoesOnWhateverTheProgramCallsItsDataAndModel) {
  for (const std::string name : {"", "own", "custom"}) {
    SCOPED_TRACE(name);
    const ScratchFolder folder;
    Experiment named = experiment();
    named.data.name = name == "custom" ? "mine" : name;
    named.model.name = name;
    const EpochMetrics whole = train_once(1, named, {.dataset = &dataset, .model = &model});
    named.train.max_steps = 5;
    TrainerOptions options{.dataset = &dataset, .model = &model, .run_folder = folder.path()};
    train_once(1, named, options);
    named.train.max_steps = 0;
    options.resume = "auto";
    EXPECT_EQ(train_once(1, named, options).parameter_hash, whole.parameter_hash);
  }
}

TEST_F(OwnPartsTest, ACheckpointIsExportedWithWhatTheProgramBrought) {
  Experiment best = experiment();
  best.checkpoint.best = true;
  train_once(1, best, {.dataset = &dataset, .model = &model, .run_folder = folder.path()});
  const fs::path checkpoint = find_checkpoint(folder.path(), "best");
  const fs::path file = folder.path() / "best.safetensors";

  export_weights(best, checkpoint, file, {.dataset = &dataset, .model = &model});

  EXPECT_EQ(load_trained(model, file).parameters.size(), layout_of(model).parameter_count);
  // The checkpoint says what the model has to know of its images.
  const fs::path without_data = folder.path() / "without_data.safetensors";
  export_weights(best, checkpoint, without_data, {.model = &model});
  EXPECT_EQ(load_trained(model, without_data).parameters, load_trained(model, file).parameters);
  const Model other = small_model("head");
  EXPECT_THAT(
      error_text<ConfigError>([&] {
        return export_weights(best, checkpoint, file, {.dataset = &dataset, .model = &other}), 0;
      }),
      StartsWith("the model own: its layers are others than those of the run"));
}

TEST_F(OwnPartsTest, ARunIsNotGoneOnWithByAnotherModelOrOtherData) {
  TrainerOptions options{.dataset = &dataset, .model = &model, .run_folder = folder.path()};
  Experiment first = experiment();
  first.train.max_steps = 5;
  train_once(1, first, options);
  options.resume = "auto";

  model = small_model("head");
  expect_refusal<ConfigError>(
      1, experiment(), options,
      StartsWith("the model own: its layers are others than those of the run"));
  model = small_model();
  dataset = make_shades(72);
  expect_refusal<ConfigError>(
      1, experiment(), options,
      StartsWith("data: the training set has 72 samples, and had 64 when the run began"));
  dataset = make_shades();
  dataset.training.pixels[0] ^= 1;
  expect_refusal<ConfigError>(1, experiment(), options,
                              StartsWith("data: the training images or their labels are others"));
  dataset = make_shades();
  dataset.test.labels[0] ^= 1;
  expect_refusal<ConfigError>(1, experiment(), options,
                              StartsWith("data: the test images or their labels are others"));
  dataset = make_shades();
  EXPECT_NO_THROW(train_once(1, experiment(), options));
}

TEST_F(OwnPartsTest, AValueThatNoFileCouldGiveIsRefused) {
  const TrainerOptions options{.dataset = &dataset, .model = &model, .run_folder = folder.path()};
  const auto refused = [&](auto change, const char* key) {
    Experiment wrong = experiment();
    change(wrong);
    expect_refusal<ConfigError>(1, wrong, options, StartsWith(key));
  };
  refused([](Experiment& e) { e.checkpoint.keep = 0; }, "checkpoint.keep: 0 is impossible");
  refused([](Experiment& e) { e.train.log_every = 0; }, "train.log_every: 0 is impossible");
  refused([](Experiment& e) { e.train.accumulate = 0; }, "train.accumulate: 0 is impossible");
  refused([](Experiment& e) { e.train.seed = -1; }, "train.seed: -1 is impossible");
  refused([](Experiment& e) { e.train.precision = static_cast<tensor::DataType>(7); },
          "train.precision: no such choice");
  refused([](Experiment& e) { e.grid.plan = static_cast<PlanChoice>(9); },
          "grid.plan: no such choice");
}

TEST_F(OwnPartsTest, ANameThatStandsTwiceIsRefused) {
  const Model model = small_model("fc1");
  expect_refusal<ConfigError>(
      1, experiment(), {.dataset = &dataset, .model = &model},
      testing::StrEq("the model own: layer fc1: there is another layer of this name"));
}

TEST_F(OwnPartsTest, RanksNormaliseAlike) {
  World{2}.run([&](transport::World& world) {
    Dataset dataset = make_shades();
    if (world.rank() == 1) dataset.mean = {0.25F};
    EXPECT_THAT(error_text<DataError>([&] {
                  return train(world, experiment(), {.dataset = &dataset, .model = &model});
                }),
                HasSubstr("the digest of the mean of images"));
  });
}

TEST_F(OwnPartsTest, ARunSaysTheNameOfItsDataAndTakesTheThreadsOfItsConfiguration) {
  Experiment threaded = experiment();
  threaded.train.threads = 2;
  std::vector<std::string> notes;
  TrainerOptions options{.dataset = &dataset, .model = &model};
  options.observer.on_note = [&](const std::string& note) { notes.push_back(note); };
  train_once(1, threaded, options);
  EXPECT_THAT(notes, Contains(StartsWith("data shades: 64 training")));
  EXPECT_THAT(notes, Contains(StartsWith("ranks 1 x 2 threads")));
}

TEST_F(OwnPartsTest, ALabelOfNoClassIsRefusedBeforeTheRun) {
  const TrainerOptions options{.dataset = &dataset, .model = &model};
  dataset.training.labels[5] = 2;
  expect_refusal<ConfigError>(
      1, experiment(), options,
      testing::StrEq("data: training image 5 has the label 2, which is none of 0 to 1"));
  dataset = make_shades();
  dataset.test.labels[7] = -1;
  expect_refusal<ConfigError>(
      1, experiment(), options,
      testing::StrEq("data: test image 7 has the label -1, which is none of 0 to 1"));
}

TEST_F(OwnPartsTest, AMixtureHasAShareOfEitherImage) {
  for (const double share : {-0.5, 1.5, std::numeric_limits<double>::quiet_NaN()}) {
    const Augmentation odd{.name = "odd", .mix = [&](SampleRandom&) { return share; }};
    const TrainerOptions options{.dataset = &dataset, .model = &model, .augmentations = {odd}};
    expect_refusal<std::invalid_argument>(1, experiment(), options,
                                          HasSubstr("\"odd\" mixes with a share of "));
  }
}

// They would wait for each other in vain, or train on other images.
TEST_F(OwnPartsTest, RanksBringTheSameParts) {
  const auto refused = [&](auto change, const char* part) {
    World{2}.run([&](transport::World& world) {
      TrainerOptions options{.dataset = &dataset, .model = &model};
      if (world.rank() == 1) change(options);
      EXPECT_THAT(error_text<ConfigError>([&] { return train(world, experiment(), options); }),
                  HasSubstr(std::string(part) + ": rank 1 has "));
    });
  };
  refused([](TrainerOptions& o) { o.diverges = [](double) { return false; }; },
          "TrainerOptions::diverges");
  refused([](TrainerOptions& o) { o.augmentations = {make_augmentation("flip", {})}; },
          "TrainerOptions::augmentations");
  refused(
      [](TrainerOptions& o) { o.make_scheme = [](const auto&, const auto&) { return nullptr; }; },
      "TrainerOptions::make_scheme");
}

// With a checkpoint under way, which all ranks complete together where all throw.
TEST_F(OwnPartsTest, ANumericErrorOfOneRankEndsAll) {
  Experiment often = experiment();
  often.checkpoint.every_steps = 1;
  World{2}.run([&](transport::World& world) {
    TrainerOptions options{.dataset = &dataset, .model = &model, .run_folder = folder.path()};
    options.observer.on_epoch = [](const EpochMetrics& /*epoch*/) {
      throw NumericError("the accuracy is too low");
    };
    EXPECT_THAT(error_text<NumericError>([&] { return train(world, often, options); }),
                HasSubstr("the accuracy is too low"));
  });
}

// A refusal by all ranks together leaves the World as it was.
TEST_F(OwnPartsTest, AProgramMayTrainAgainAfterARefusal) {
  const ScratchFolder other_folder;
  Experiment first = experiment();
  first.train.max_steps = 5;
  TrainerOptions options{.dataset = &dataset, .model = &model, .run_folder = folder.path()};
  train_once(2, first, options);

  Experiment other = experiment();
  other.optimizer.learning_rate = 0.01;
  World{2}.run([&](transport::World& world) {
    TrainerOptions again = options;
    again.resume = "auto";
    EXPECT_THAT(error_text<ConfigError>([&] { return train(world, other, again); }),
                StartsWith("optimizer.learning_rate: "));
    again.resume = "";
    again.run_folder = other_folder.path();
    EXPECT_EQ(train(world, other, again).epoch, 2);
  });
}

TEST_F(OwnPartsTest, ARefusedRunLeavesTheFolderAsItWas) {
  const TrainerOptions options{.dataset = &dataset, .model = &model, .run_folder = folder.path()};
  train_once(1, experiment(), options);
  const std::string metrics = contents(folder.path() / "metrics.jsonl");
  Experiment limited = experiment();
  limited.train.memory_limit = 1;
  expect_refusal<std::exception>(1, limited, options, StartsWith("train.memory_limit: "));
  EXPECT_EQ(contents(folder.path() / "metrics.jsonl"), metrics);
  EXPECT_TRUE(has_completed(folder.path()));

  train_once(1, experiment(), options);
  EXPECT_EQ(test::events(folder.path(), "start").size(), 1U);
}

// The output that a layer states decides how much memory it gets for it.
Model with_wrong(std::function<tensor::Shape(const tensor::Shape&)> output) {
  const test::OwnLayer wrong{.text = "wrong", .output = std::move(output)};
  ModelBuilder builder("wrong", {1, 8, 8, 1}, 2);
  const ValueId x = builder.add("half", wrong, ModelBuilder::input);
  builder.add("fc", FullyConnectedLayer{.outputs = 2}, x);
  return builder.finish();
}

TEST_F(OwnPartsTest, ALayerThatSaysAnImpossibleOutputIsRefused) {
  const auto refused = [&](auto output, const char* what) {
    const Model model = with_wrong(output);
    expect_refusal<ConfigError>(1, experiment(), {.dataset = &dataset, .model = &model},
                                StartsWith(std::string("the model wrong: layer half: ") + what));
  };
  refused([](const tensor::Shape& in) { return tensor::Shape{1, in.h / 2, in.w / 2, in.c}; },
          "of 2 images it makes 1");
  refused([](const tensor::Shape& in) { return tensor::Shape{in.n, -1, in.w, in.c}; },
          "it cannot write images of -1x8x1");
  refused([](const tensor::Shape& in) { return tensor::Shape{in.n, 1L << 40, 1L << 40, in.c}; },
          "it cannot write images of ");
}

TEST_F(OwnPartsTest, ALayerWithoutAKernelIsRefused) {
  const Model model = with_wrong({});
  expect_refusal<std::invalid_argument>(1, experiment(), {.dataset = &dataset, .model = &model},
                                        HasSubstr("\"wrong\" has no kernel"));
}

// Where images are split in space, a layer that reads neighbouring pixels gets whole ones.
TEST_F(OwnPartsTest, ALayerThatJoinsPixelsTrainsOnAGridAsOnOneRank) {
  const Model model = with_shift({.traits = LayerTraits{.joins_pixels = true}});
  const TrainerOptions options{.dataset = &dataset, .model = &model};
  const EpochMetrics alone = train_once(1, experiment(), options);
  Experiment split = experiment();
  split.grid.height = 2;
  const EpochMetrics grid = train_once(2, split, options);
  EXPECT_NEAR(grid.loss, alone.loss, 1e-4 * alone.loss);
  EXPECT_NEAR(grid.test_loss, alone.test_loss, 1e-4 * alone.test_loss);
}

TEST_F(OwnPartsTest, ALayerWithWindowsNeedsAKernelForSplitImages) {
  const Model model =
      with_shift({.windows = Windows{.h = {.kernel = 3, .stride = 1, .before = 1, .after = 1}}});
  Experiment split = experiment();
  split.grid.height = 2;
  World{2}.run([&](transport::World& world) {
    EXPECT_THAT(error_text<std::invalid_argument>(
                    [&] { return train(world, split, {.dataset = &dataset, .model = &model}); }),
                HasSubstr("has no kernel for images that are split in space"));
  });
}

}  // namespace
}  // namespace rondo::train::own_parts_test
