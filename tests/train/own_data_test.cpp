// A data set, a source of images and an augmentation from outside of the library: how many lines
// they take, and that a run uses them.

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <limits>
#include <memory>
#include <mutex>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <rondo/sync/update_scheme.hpp>
#include <rondo/tensor/xview.hpp>
#include <rondo/train/layer_type.hpp>
#include <rondo/train/loader.hpp>
#include <rondo/train/trainer.hpp>
#include <rondo/transport/usable_cpus.hpp>

#include "support/error_text.hpp"
#include "support/program.hpp"
#include "support/world.hpp"
#include "support/xtensor.hpp"
#include "train/resumed_runs.hpp"
#include "train/support/own_layer.hpp"

namespace rondo::train::own_data_test {
namespace {

using test::expect_refusal;
using test::with;

// Images of one grey level each; the class is dark or bright.
Images shades(std::int64_t count, int offset) {
  Images images{.shape = {count, 28, 28, 1}};
  for (std::int64_t i = 0; i < count; ++i) {
    const auto label = static_cast<std::int32_t>(i % 2);
    images.labels.push_back(label);
    images.pixels.insert(images.pixels.end(), 28 * 28,
                         static_cast<std::uint8_t>(60 + 120 * label + offset));
  }
  return images;
}

Dataset make_shades() {
  return {.name = "shades",
          .classes = 2,
          .training = shades(256, 0),
          .test = shades(64, 9),
          .mean = {0.5F},
          .stddev = {0.25F}};
}

// Devries, Taylor, "Improved regularization of convolutional neural networks with cutout", 2017.
Augmentation cutout(std::int64_t side) {
  return {.name = "cutout",
          .apply = [side](tensor::View<std::uint8_t> image, SampleRandom& random) {
            const std::int64_t top = random.below(image.shape.h - side);
            const std::int64_t left = random.below(image.shape.w - side);
            auto pixels = tensor::xview(image);
            xt::view(pixels, 0, xt::range(top, top + side), xt::range(left, left + side)) = 0;
          }};
}

// The same images, made when they are wanted.
class ShadeSource : public ImageSource {
 public:
  explicit ShadeSource(int offset) : offset_(offset) {}

  void read(std::int64_t image, const Framing&, tensor::View<std::uint8_t> out) const override {
    const auto shade = static_cast<std::uint8_t>(60 + 120 * (image % 2) + offset_);
    std::fill_n(out.data, out.shape.size(), shade);
  }
  [[nodiscard]] std::string digest() const override { return std::to_string(offset_); }

 private:
  int offset_;
};

Dataset make_shades_on_demand() {
  Dataset dataset = make_shades();
  dataset.training.source = std::make_shared<ShadeSource>(0);
  dataset.test.source = std::make_shared<ShadeSource>(9);
  dataset.training.pixels.clear();
  dataset.test.pixels.clear();
  return dataset;
}

Experiment experiment() {
  Experiment experiment;
  experiment.model.name = "lenet5";
  experiment.train.global_batch = 32;
  experiment.train.epochs = 2;
  experiment.optimizer.learning_rate = 0.02;
  return experiment;
}

TEST(OwnDataTest, ARunLearnsADataSetFromOutside) {
  const Dataset dataset = make_shades();
  rondo::test::World{2}.run([&](transport::World& world) {
    const EpochMetrics last =
        train(world, experiment(), {.dataset = &dataset, .augmentations = {cutout(8)}});
    EXPECT_EQ(last.accuracy, 100.0);
  });
}

TEST(OwnDataTest, ASourceGivesTheSameRunAsImagesInMemory) {
  const Dataset in_memory = make_shades();
  const Dataset on_demand = make_shades_on_demand();
  rondo::test::World{2}.run([&](transport::World& world) {
    const EpochMetrics one = train(world, experiment(), {.dataset = &in_memory});
    const EpochMetrics other = train(world, experiment(), {.dataset = &on_demand});

    EXPECT_EQ(other.parameter_hash, one.parameter_hash);
    EXPECT_EQ(other.test_loss, one.test_loss);
  });
}

// Its decoders' CPUs are expected to be all of the process.
class PlacedSource : public ShadeSource {
 public:
  PlacedSource() : ShadeSource(0) {}

  void read(std::int64_t image, const Framing& frame,
            tensor::View<std::uint8_t> out) const override {
    EXPECT_EQ(transport::thread_cpus(), transport::usable_cpus().cpus);
    ShadeSource::read(image, frame, out);
  }
};

// The test runs itself as another process, whose first thread is bound before main().
TEST(OwnDataTest, DecodersRunOnAllCpusOfAProcessWhoseFirstThreadOpenMpHasBound) {
  const char* const all = std::getenv("RONDO_TEST_CPUS");
  if (all == nullptr) {
    rondo::test::Program self(
        {"/proc/self/exe", "--gtest_filter=OwnDataTest.DecodersRunOnAllCpus*"},
        {{"OMP_PROC_BIND", "close"},
         {"RONDO_TEST_CPUS", std::to_string(transport::usable_cpus().cpus.size())}});
    const auto ended = self.wait();
    EXPECT_EQ(ended.status, 0) << ended.out;
    return;
  }
  EXPECT_EQ(std::to_string(transport::usable_cpus().cpus.size()), all);
  Dataset dataset = make_shades_on_demand();
  dataset.training.source = std::make_shared<PlacedSource>();
  Loader loader(dataset, {.global_batch = 8, .largest_range = 8});
  static_cast<void>(loader.load({.epoch = 0, .step = 0, .first = 0, .last = 8}));
  // A mask that the program sets later is its own choice.
  transport::bind_to(transport::thread_cpus());
  EXPECT_EQ(transport::usable_cpus().cpus, transport::thread_cpus());
}

class SourceWithoutDigest : public ShadeSource {
 public:
  SourceWithoutDigest() : ShadeSource(0) {}
  [[nodiscard]] std::string digest() const override { throw DataError("there is no list"); }
};

TEST(OwnDataTest, ASourceThatGivesNoDigestOnOneRankEndsAll) {
  const Dataset usual = make_shades_on_demand();
  Dataset broken = make_shades_on_demand();
  broken.training.source = std::make_shared<SourceWithoutDigest>();
  rondo::test::World{2}.run([&](transport::World& world) {
    const Dataset& dataset = world.rank() == 1 ? broken : usual;
    EXPECT_THAT(rondo::test::error_text<DataError>(
                    [&] { train(world, experiment(), {.dataset = &dataset}); }),
                testing::HasSubstr("there is no list"));
  });
}

class BrokenSource : public ShadeSource {
 public:
  BrokenSource() : ShadeSource(0) {}
  void read(std::int64_t image, const Framing& frame,
            tensor::View<std::uint8_t> out) const override {
    if (image == 3) throw DataError("image 3 is broken");
    ShadeSource::read(image, frame, out);
  }
};

// The library printed them to stderr.
TEST(OwnDataTest, AProgramIsToldOfBrokenImages) {
  Dataset dataset = make_shades_on_demand();
  dataset.training.source = std::make_shared<BrokenSource>();
  Experiment skips = experiment();
  skips.data.broken = BrokenImages::skip;
  skips.train.epochs = 1;
  std::mutex mutex;
  std::vector<std::string> problems;
  TrainerOptions options{.dataset = &dataset};
  options.on_broken = [&](const std::string& problem) {
    const std::lock_guard lock(mutex);
    problems.push_back(problem);
  };
  testing::internal::CaptureStderr();
  rondo::test::World{1}.run([&](transport::World& world) { train(world, skips, options); });

  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
  EXPECT_THAT(problems, testing::ElementsAre("image 3 is broken"));
}

class CountedSource : public ShadeSource {
 public:
  CountedSource() : ShadeSource(9) {}

  void read(std::int64_t image, const Framing& frame,
            tensor::View<std::uint8_t> out) const override {
    ++reads;
    ShadeSource::read(image, frame, out);
  }

  mutable std::atomic<int> reads = 0;
};

// Each rank its share, and nothing ahead that belongs to the other's.
TEST(OwnDataTest, AnEvaluationReadsEachTestImageOnce) {
  Dataset dataset = make_shades_on_demand();
  const auto source = std::make_shared<CountedSource>();
  dataset.test.source = source;
  rondo::test::World{2}.run([&](transport::World& world) {
    static_cast<void>(train(world, experiment(), {.dataset = &dataset}));
  });
  const auto epochs = static_cast<int>(experiment().train.epochs);
  EXPECT_EQ(source->reads, epochs * 64);
}

class KeepingSource : public ShadeSource {
 public:
  explicit KeepingSource(std::size_t kept) : ShadeSource(9), kept_(kept) {}
  [[nodiscard]] std::size_t bytes_per_thread() const override { return kept_; }

 private:
  std::size_t kept_;
};

// Also where ranks have a second stream of training images.
TEST(OwnDataTest, MemoryOfThreadsThatReadTestImagesCountsOnce) {
  Experiment paced = experiment();
  paced.update.scheme = "cyclic";
  paced.update.warmup_epochs = 0.0;
  paced.data.decoders = 1;
  const auto peak = [&](std::size_t kept) {
    Dataset dataset = make_shades_on_demand();
    dataset.test.source = std::make_shared<KeepingSource>(kept);
    TrainerOptions options{.dataset = &dataset};
    std::uint64_t bytes = 0;
    options.observer.on_end = [&](const RunSummary& summary) { bytes = summary.peak_bytes; };
    rondo::test::World{2}.run(
        [&](transport::World& world) { static_cast<void>(train(world, paced, options)); });
    return bytes;
  };
  constexpr std::size_t kept = 1000;
  EXPECT_EQ(peak(kept) - peak(0), kept);
}

// One value of a pixel that no image of the data set has tells where something was cut out.
TEST(OwnDataTest, AnAugmentationChangesTrainingImagesAlone) {
  const Dataset dataset = make_shades();
  Loader loader(dataset, {.global_batch = 8, .largest_range = 8, .augmentations = {cutout(8)}});
  const float black = (0.0F - dataset.mean[0]) / dataset.stddev[0];

  EXPECT_THAT(loader.load_test(0, 8).images, testing::Each(testing::Gt(black)));
  const Batch batch = loader.load({0, 0, 0, 8});
  for (std::size_t i = 0; i < 8; ++i) {
    const auto image = batch.images.subspan(i * 28 * 28, 28 * 28);
    EXPECT_EQ(std::ranges::count(image, black), 64) << "image " << i;
  }
}

TEST(OwnDataTest, AnAugmentationIsTheSameWhoeverAsks) {
  const Dataset dataset = make_shades();
  const LoaderOptions options{.global_batch = 8,
                              .largest_range = 8,
                              .augmentations = {make_augmentation("flip", {}), cutout(8)}};
  Loader one(dataset, options);
  Loader other(dataset, options);
  const Batch whole = one.load({1, 2, 0, 8});
  static_cast<void>(other.load({0, 0, 0, 8}));
  const Batch part = other.load({1, 2, 5, 8});

  const auto expected = whole.images.subspan(5 * 28 * 28);
  EXPECT_THAT(part.images, testing::ElementsAreArray(expected.begin(), expected.end()));
}

TEST(OwnDataTest, RefusesAugmentationsThatCannotBeToldApart) {
  const Dataset dataset = make_shades();
  const LoaderOptions twice{.augmentations = {cutout(8), cutout(4)}};
  const LoaderOptions empty{.augmentations = {Augmentation{.name = "nothing"}}};
  EXPECT_EQ(rondo::test::error_text<std::invalid_argument>([&] { Loader(dataset, twice); }),
            "loader: two augmentations have the same name");
  EXPECT_EQ(rondo::test::error_text<std::invalid_argument>([&] { Loader(dataset, empty); }),
            "loader: an augmentation without a function");
}

// A checkpoint keeps both numbers, and one with a deviation of 0 could not be read.
TEST(OwnDataTest, RefusesImagesThatCannotBeNormalised) {
  Dataset constant = make_shades();
  constant.stddev = {0.0F};
  Dataset unknown = make_shades();
  unknown.mean = {std::numeric_limits<float>::quiet_NaN()};
  EXPECT_EQ(rondo::test::error_text<std::invalid_argument>([&] { Loader(constant, {}); }),
            "loader: a stddev is not above 0, so that pixels cannot be divided by it");
  EXPECT_EQ(rondo::test::error_text<std::invalid_argument>([&] { Loader(unknown, {}); }),
            "loader: a mean is no finite number");
}

// Passes values and gradients on; one call of backward, of one of the ranks that share the counter,
// gives NaN instead.
class FaultyKernel final : public OneForwardKernel {
 public:
  explicit FaultyKernel(std::shared_ptr<std::atomic<int>> calls_left)
      : calls_left_(std::move(calls_left)) {}
  void backward_parameters(const BackwardOperands& /*operands*/) override {}
  void backward_input(const BackwardOperands& operands) override {
    const bool faulty = calls_left_->fetch_sub(1) == 1;
    const std::span<float> dx(operands.dx.as<float>().data,
                              static_cast<std::size_t>(operands.dx.shape.size()));
    std::copy_n(operands.dy.as<float>().data, dx.size(), dx.data());
    if (faulty) std::ranges::fill(dx, std::numeric_limits<float>::quiet_NaN());
  }

 private:
  void forward(const ForwardOperands& operands) override {
    std::copy_n(operands.x.as<float>().data, operands.x.shape.size(), operands.y.as<float>().data);
  }

  std::shared_ptr<std::atomic<int>> calls_left_;
};

// The loss is finite in the third step, in which one rank's gradient is not.
void expect_gradient_named(int ranks, const Experiment& experiment) {
  const Dataset dataset = make_shades();
  ModelBuilder builder("faulty", {1, 28, 28, 1}, 2);
  ValueId x = builder.add("first", FullyConnectedLayer{.outputs = 8}, ModelBuilder::input);
  const auto calls_left = std::make_shared<std::atomic<int>>(2 * ranks + 1);
  const test::OwnLayer faulty{
      .kernel = [=](auto&, auto&) { return std::make_unique<FaultyKernel>(calls_left); }};
  x = builder.add("faulty", faulty, x);
  builder.add("last", FullyConnectedLayer{.outputs = 2}, x);
  const Model model = builder.finish();

  rondo::test::World{ranks}.run([&](transport::World& world) {
    EXPECT_THAT(rondo::test::error_text<NumericError>(
                    [&] { train(world, experiment, {.dataset = &dataset, .model = &model}); }),
                testing::HasSubstr("the gradient of layer first became NaN or Inf in step 3;"));
  });
}

// Both ranks end before the update.
TEST(OwnModelTest, AGradientThatIsNotFiniteEndsAllRanksInItsStep) {
  expect_gradient_named(2, experiment());
}

// Replicas that step by themselves notice it after the update, when the parameters of both ranks
// are not finite.
TEST(OwnModelTest, AGradientThatIsNotFiniteIsNamedAStepLaterOnAGrid) {
  Experiment replica_of_two = experiment();
  replica_of_two.update.scheme = "k_step";
  replica_of_two.update.warmup_epochs = 0.0;
  replica_of_two.grid.filter = 2;
  expect_gradient_named(2, replica_of_two);
}

Model model_for(std::int64_t classes) {
  ModelBuilder builder("own", {1, 28, 28, 1}, classes);
  builder.add("fc", FullyConnectedLayer{.outputs = classes}, ModelBuilder::input);
  return builder.finish();
}

TEST(OwnModelTest, ARunLearnsWithAModelFromOutside) {
  const Dataset dataset = make_shades();
  const Model model = model_for(2);
  rondo::test::World{2}.run([&](transport::World& world) {
    EXPECT_EQ(train(world, experiment(), {.dataset = &dataset, .model = &model}).accuracy, 100.0);
  });
}

TEST(OwnModelTest, RefusesAModelForOtherData) {
  const Dataset dataset = make_shades();
  const Model model = model_for(3);
  expect_refusal<ConfigError>(
      1, experiment(), {.dataset = &dataset, .model = &model},
      "the model own takes images of 28x28x1 in 3 classes, and the data have 28x28x1 in 2");
}

TEST(OwnModelTest, RefusesRanksWithOtherModels) {
  const Dataset dataset = make_shades();
  rondo::test::World{2}.run([&](transport::World& world) {
    Model model = model_for(2);
    if (world.rank() == 1) model.layers.front().name = "other";
    EXPECT_THAT(rondo::test::error_text<DataError>(
                    [&] { train(world, experiment(), {.dataset = &dataset, .model = &model}); }),
                testing::HasSubstr("the digest of the model's layers"));
  });
}

// The keys would do nothing.
TEST(OwnDataTest, RefusesAMeanBesideThatOfTheDataSet) {
  const Dataset dataset = make_shades();
  Experiment normalised = experiment();
  normalised.data.mean = {0.5, 0.5, 0.5};
  normalised.data.stddev = {0.25, 0.25, 0.25};
  expect_refusal<ConfigError>(
      1, normalised, {.dataset = &dataset},
      testing::HasSubstr("data.mean, data.stddev: the program's own data set has them"));
}

TEST(OwnSchemeTest, RefusesKeysThatDoNotReachIt) {
  const Dataset dataset = make_shades();
  const MakeScheme make = [](const auto&, const auto&) { return nullptr; };
  const std::pair<std::string, std::string> refusals[] = {
      {"update.scheme=k_step", "a scheme of your own takes its place"},
      {"train.reduce_precision=bf16", "train.reduce_precision: does not reach the scheme"},
      {"optimizer.clip_norm=1", "optimizer.clip_norm: does not reach the scheme"},
      {"", "has made no scheme"}};
  for (const auto& [settings, text] : refusals) {
    const Experiment refused = settings.empty() ? experiment() : with(experiment(), settings);
    expect_refusal<ConfigError>(1, refused, {.dataset = &dataset, .make_scheme = make},
                                testing::HasSubstr(text));
  }
}

}  // namespace
}  // namespace rondo::train::own_data_test
