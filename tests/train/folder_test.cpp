// A folder of images: which images it has, how a Loader decodes them on several threads, what
// becomes of broken ones, and how much memory a large folder takes.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <rondo/train/dataset.hpp>
#include <rondo/train/inference.hpp>
#include <rondo/train/loader.hpp>
#include <rondo/train/trainer.hpp>

#include "support/error_text.hpp"
#include "support/scratch_folder.hpp"
#include "support/world.hpp"
#include "train/image_files.hpp"

namespace rondo::train::folder_test {
namespace {

using rondo::test::error_text;
using rondo::test::gradient_image;
using testing::AllOf;
using testing::ElementsAre;
using testing::ElementsAreArray;
using testing::HasSubstr;

// Two classes; the amount of blue tells them apart.
class FolderTest : public testing::Test {
 protected:
  FolderTest() {
    for (const char* const name : {"train/cat", "train/dog", "val/cat", "val/dog"}) {
      std::filesystem::create_directories(folder_.path() / name);
    }
    for (int i = 0; i < 12; ++i) {
      const std::string name = std::to_string(100 + i);
      write("train/cat/" + name + ".jpg", rondo::test::jpeg_of(gradient_image(40 + i, 50, 20)));
      write("train/dog/" + name + ".PNG", rondo::test::png_of(gradient_image(30, 33 + i, 220)));
    }
    for (int i = 0; i < 4; ++i) {
      const std::string name = std::to_string(i);
      write("val/cat/" + name + ".jpeg", rondo::test::jpeg_of(gradient_image(50, 50, 20)));
      write("val/dog/" + name + ".ppm", rondo::test::ppm_of(gradient_image(41, 30, 220)));
    }
  }

  void write(const std::string& name, const rondo::test::Bytes& bytes) const {
    folder_.write(name, bytes);
  }

  [[nodiscard]] Dataset list() const { return list_folder(folder_.path(), 16, 16); }
  [[nodiscard]] std::string list_error() const {
    return error_text<DataError>([this] { return list(); });
  }

  rondo::test::ScratchFolder folder_;
};

std::vector<float> images_of(const Batch& batch) {
  return {batch.images.begin(), batch.images.end()};
}

TEST_F(FolderTest, NumbersClassesAndImagesByName) {
  folder_.write("train/cat/notes.txt", "no image");
  folder_.write("train/dog/.hidden.jpg", "no image");

  const Dataset dataset = list();

  EXPECT_THAT(dataset.class_names, ElementsAre("cat", "dog"));
  EXPECT_EQ(dataset.classes, 2);
  EXPECT_EQ(dataset.training.shape, (tensor::Shape{24, 16, 16, 3}));
  EXPECT_EQ(dataset.test.shape, (tensor::Shape{8, 16, 16, 3}));
  EXPECT_THAT(dataset.test.labels, ElementsAre(0, 0, 0, 0, 1, 1, 1, 1));
  EXPECT_THAT(dataset.mean, ElementsAre(0.485F, 0.456F, 0.406F));
}

TEST_F(FolderTest, SaysWhatIsMissing) {
  std::filesystem::remove_all(folder_.path() / "val" / "dog");
  EXPECT_THAT(list_error(),
              AllOf(HasSubstr("val: has other classes than "), HasSubstr("train: it lacks dog; ")));

  for (const char* name : {"ant", "bee", "elk", "fox"}) {
    std::filesystem::create_directory(folder_.path() / "val" / name);
  }
  EXPECT_THAT(list_error(), HasSubstr("it lacks dog, and has ant, bee, elk and 1 more besides; "));

  for (const char* name : {"ant", "bee", "elk", "fox"}) {
    std::filesystem::remove(folder_.path() / "val" / name);
  }
  std::filesystem::create_directory(folder_.path() / "val" / "dog");
  EXPECT_THAT(list_error(),
              HasSubstr("val/dog: holds no image; put an image there, or remove the class"));

  std::filesystem::remove_all(folder_.path() / "val");
  EXPECT_THAT(list_error(), HasSubstr("has no subfolder val, nor test"));

  std::filesystem::remove_all(folder_.path() / "train");
  EXPECT_THAT(list_error(), AllOf(HasSubstr("train: cannot be listed"), HasSubstr("data.path")));
}

TEST_F(FolderTest, TellsFoldersApartByTheirNames) {
  const std::string before = list().training.source->digest();
  EXPECT_EQ(list().training.source->digest(), before);

  std::filesystem::rename(folder_.path() / "train/cat/100.jpg",
                          folder_.path() / "train/dog/100.jpg");
  EXPECT_NE(list().training.source->digest(), before);
}

TEST_F(FolderTest, GivesImagesWithTheirLabels) {
  const Dataset dataset = list();
  Loader loader(dataset, {.global_batch = 24, .largest_range = 24});

  const Batch batch = loader.load({0, 0, 0, 24});
  for (std::size_t i = 0; i < 24; ++i) {
    const float blue = batch.images[i * 16 * 16 * 3 + 2] * dataset.stddev[2] + dataset.mean[2];
    EXPECT_NEAR(255.0F * blue, batch.labels[i] == 0 ? 20.0F : 220.0F, 4.0F) << i;
  }
  EXPECT_THAT(loader.load_test(2, 6).labels, ElementsAre(0, 0, 1, 1));
}

// However many threads prepare it, in whatever parts, and whatever was asked before.
TEST_F(FolderTest, PreparesTheSameImagesOnAnyNumberOfThreads) {
  const Dataset dataset = list();
  LoaderOptions options{.global_batch = 10, .largest_range = 10};
  for (const char* const text : {"random_resized_crop:0.2,1", "flip", "color_jitter", "cutout:4"}) {
    options.augmentations.push_back(make_augmentation(text, dataset.mean));
  }
  options.decoders = 1;
  options.ahead = 1;
  Loader one(dataset, options);
  options.decoders = 4;
  options.ahead = 3;
  Loader four(dataset, options);

  for (std::int64_t step = 0; step < 9; ++step) {
    const auto samples = one.samples(step % 3);
    const std::vector<float> whole = images_of(one.load({step / 3, step % 3, 0, samples}));
    std::vector<float> parts;
    for (std::int64_t first = 0; first < samples; first += 4) {
      const std::vector<float> part = images_of(
          four.load({step / 3, step % 3, first, std::min<std::int64_t>(first + 4, samples)}));
      four.prefetch({step / 3, step % 3, 0, 1});
      parts.insert(parts.end(), part.begin(), part.end());
    }
    ASSERT_THAT(parts, ElementsAreArray(whole)) << "step " << step;
  }
}

TEST_F(FolderTest, RefusesABrokenImageByName) {
  folder_.write("train/cat/105.jpg", "no image");
  const Dataset dataset = list();
  Loader loader(dataset, {.global_batch = 24, .largest_range = 24});

  EXPECT_THAT(error_text<DataError>([&] { return loader.load({0, 0, 0, 24}); }),
              AllOf(HasSubstr("train/cat/105.jpg: is no JPEG, PNG, PPM or PGM image"),
                    HasSubstr("data.broken = \"skip\"")));
}

TEST_F(FolderTest, PutsTheNextImageInThePlaceOfABrokenOne) {
  folder_.write("train/cat/105.jpg", "no image");
  folder_.write("train/cat/106.jpg", "");
  const Dataset dataset = list();
  std::mutex mutex;
  std::vector<std::string> problems;
  const LoaderOptions options{.global_batch = 24,
                              .largest_range = 24,
                              .broken = BrokenImages::skip,
                              .on_broken = [&](const std::string& problem) {
                                const std::lock_guard lock(mutex);
                                problems.push_back(problem);
                              }};
  Loader loader(dataset, options);

  const Batch batch = loader.load({0, 0, 0, 24});
  EXPECT_EQ(std::ranges::count(batch.labels, 0), 12);
  static_cast<void>(loader.load({1, 0, 0, 24}));

  EXPECT_EQ(loader.skipped(), 4);
  std::ranges::sort(problems);
  EXPECT_THAT(problems,
              ElementsAre(HasSubstr("105.jpg: is no JPEG"), HasSubstr("106.jpg: is empty")));
}

// Some parts of a file that is cut are whole. The epoch alone decides which parts are seen, and not
// what this loader has seen before.
TEST_F(FolderTest, ABrokenImageOfWhichPartsAreReadStandsForItselfWhereTheyAreWhole) {
  rondo::test::Bytes cut = rondo::test::jpeg_of(gradient_image(400, 50, 20));
  cut.resize(cut.size() / 2);
  write("train/cat/105.jpg", cut);
  const Dataset dataset = list();
  const LoaderOptions options{
      .global_batch = 24,
      .largest_range = 24,
      .augmentations = {make_augmentation("random_resized_crop:0.05,0.1", dataset.mean)},
      .broken = BrokenImages::skip};
  Loader all(dataset, options);
  std::int64_t skipped = 0;
  constexpr std::int64_t epochs = 12;
  for (std::int64_t epoch = 0; epoch < epochs; ++epoch) {
    Loader only_this(dataset, options);
    const std::vector<float> expected = images_of(only_this.load({epoch, 0, 0, 24}));
    ASSERT_EQ(images_of(all.load({epoch, 0, 0, 24})), expected) << "epoch " << epoch;
    skipped += only_this.skipped();
  }
  EXPECT_EQ(all.skipped(), skipped);
  EXPECT_GT(skipped, 0);
  EXPECT_LT(skipped, epochs);
}

// Each rank of a replica stores its own part. It reads all samples, also where it stores some only,
// so that it finds the stand-ins, and their labels, that the others find.
TEST_F(FolderTest, RanksWithPartsOfABatchAgreeOnStandIns) {
  folder_.write("train/cat/111.jpg", "no image");
  folder_.write("val/cat/3.jpeg", "no image");
  const Dataset dataset = list();
  const LoaderOptions options{
      .global_batch = 24, .largest_range = 24, .broken = BrokenImages::skip};
  Loader whole_loader(dataset, options);
  const Batch all = whole_loader.load({0, 0, 0, 24});
  const Batch all_test = whole_loader.load_test(0, 8);
  const std::size_t image = 16 * 16 * 3;

  for (const Box& part : {Box{{0, 24}, {0, 5}, {0, 16}, {0, 3}},
                          {{0, 24}, {5, 16}, {0, 16}, {0, 3}},
                          {{0, 12}, {0, 16}, {0, 16}, {0, 3}}}) {
    Loader loader(dataset, options);
    loader.read_only({{24, part}, {8, {{0, 8}, part.h, part.w, part.c}}});
    const Batch batch = loader.load({0, 0, 0, 24});
    const Batch test = loader.load_test(0, 8);

    EXPECT_THAT(batch.labels, ElementsAreArray(all.labels));
    EXPECT_THAT(test.labels, ElementsAreArray(all_test.labels));
    EXPECT_EQ(loader.skipped(), whole_loader.skipped());
    const auto count = static_cast<std::size_t>(part.h.size() * 16 * 3);
    ASSERT_EQ(batch.images.size(), 24 * count);  // all samples are read
    for (std::size_t sample = 0; sample < 24; ++sample) {
      const auto first = static_cast<std::size_t>(part.h.first * 16 * 3);
      EXPECT_THAT(batch.images.subspan(sample * count, count),
                  ElementsAreArray(all.images.subspan(sample * image + first, count)));
    }
  }
}

// Batches that are only announced may never be trained on.
TEST_F(FolderTest, CountsTheStandInsOfBatchesThatWereTaken) {
  folder_.write("train/cat/105.jpg", "no image");
  const Dataset dataset = list();
  Loader loader(dataset, {.global_batch = 24, .largest_range = 24, .broken = BrokenImages::skip});
  for (int ahead = 0; ahead <= loader.ahead(); ++ahead) loader.prefetch({ahead, 0, 0, 24});

  for (std::int64_t epoch = 0; epoch < loader.ahead(); ++epoch) {
    EXPECT_EQ(loader.skipped(), epoch);
    static_cast<void>(loader.load({epoch, 0, 0, 24}));
  }
}

TEST_F(FolderTest, LeavesOutWhatIsNoImageAndSaysSo) {
  EXPECT_EQ(list().note, "");

  folder_.write("train/cat/notes.txt", "no image");
  EXPECT_THAT(list().note, HasSubstr("1 entry is"));

  folder_.write("val/dog/photo.webp", "of another kind");
  std::filesystem::create_directory(folder_.path() / "train/dog/folder.png");
  const Dataset dataset = list();
  EXPECT_THAT(dataset.note, HasSubstr("3 entries are"));
  EXPECT_EQ(dataset.training.shape.n, 24);
}

TEST_F(FolderTest, EndsWhenAllImagesAreBroken) {
  for (const auto& file : std::filesystem::recursive_directory_iterator(folder_.path() / "train")) {
    if (file.is_regular_file()) std::ofstream(file.path(), std::ios::trunc) << "no image";
  }
  const Dataset dataset = list();
  Loader loader(dataset, {.global_batch = 8, .largest_range = 8, .broken = BrokenImages::skip});

  EXPECT_THAT(error_text<DataError>([&] { return loader.load({0, 0, 0, 8}); }),
              HasSubstr("too many broken images in a row"));
}

Experiment experiment_of(const std::filesystem::path& folder) {
  Experiment experiment;
  experiment.data.name = "folder";
  experiment.data.path = folder;
  experiment.data.image_size = 28;
  experiment.data.augment = {"random_resized_crop:0.5,1", "flip"};
  experiment.data.decoders = 2;
  experiment.data.centre_crop = 1.0;
  experiment.model.name = "lenet5";
  experiment.train.global_batch = 6;
  experiment.train.epochs = 6;
  experiment.optimizer.learning_rate = 0.01;
  return experiment;
}

// The sum of a step's gradients depends on the order of its terms, and so a little on the ranks.
TEST_F(FolderTest, ARunLearnsAFolderOnAnyNumberOfRanks) {
  std::vector<double> losses;
  for (const int ranks : {1, 2, 3}) {
    rondo::test::World{ranks}.run([&](transport::World& world) {
      const EpochMetrics last = train(world, experiment_of(folder_.path()), {});
      if (world.rank() == 0) losses.push_back(last.loss);
      EXPECT_EQ(last.accuracy, 100.0);
    });
  }

  EXPECT_NEAR(losses.at(1), losses.at(0), 1e-3 * losses.at(0));
  EXPECT_NEAR(losses.at(2), losses.at(0), 1e-3 * losses.at(0));
}

// Where the images are not.
TEST_F(FolderTest, AModelKeepsTheNamesOfItsClasses) {
  const rondo::test::ScratchFolder run;
  Experiment experiment = experiment_of(folder_.path());
  experiment.train.epochs = 1;
  rondo::test::World{1}.run(
      [&](transport::World& world) { train(world, experiment, {.run_folder = run.path()}); });
  experiment.data.path = folder_.path() / "gone";

  const Classifier classifier(experiment, run.path() / "model.safetensors");
  EXPECT_THAT(classifier.class_names(), ElementsAre("cat", "dog"));
}

double loss_of(const std::vector<float>& logits, std::size_t label) {
  double sum = 0.0;
  for (const float logit : logits) sum += std::exp(static_cast<double>(logit));
  return std::log(sum) - static_cast<double>(logits.at(label));
}

// The half of an image is another image than the whole, so the losses tell them apart.
TEST_F(FolderTest, AClassifierSeesTheImagesThatEvaluationSees) {
  const rondo::test::ScratchFolder run;
  Experiment experiment = experiment_of(folder_.path());
  experiment.train.epochs = 1;
  experiment.data.centre_crop = 0.5;
  const std::filesystem::path weights = run.path() / "model.safetensors";
  TestResult evaluated;
  rondo::test::World{1}.run([&](transport::World& world) {
    train(world, experiment, {.run_folder = run.path()});
    evaluated = evaluate(world, experiment, weights);
  });

  const auto mean_loss = [&](const Experiment& seen) {
    Classifier classifier(seen, weights);
    double sum = 0.0;
    for (int i = 0; i < 4; ++i) {
      const std::string name = std::to_string(i);
      sum += loss_of(classifier.logits(folder_.path() / "val/cat" / (name + ".jpeg")), 0);
      sum += loss_of(classifier.logits(folder_.path() / "val/dog" / (name + ".ppm")), 1);
    }
    return sum / 8.0;
  };
  EXPECT_EQ(evaluated.images, 8);
  EXPECT_NEAR(mean_loss(experiment), evaluated.loss, 1e-5);
  experiment.data.centre_crop = 1.0;
  EXPECT_GT(std::abs(mean_loss(experiment) - evaluated.loss), 1e-4);
}

TEST_F(FolderTest, ABrokenImageEndsARunWithItsName) {
  folder_.write("train/cat/105.jpg", "no image");

  rondo::test::World{2}.run([&](transport::World& world) {
    EXPECT_THAT(
        error_text<DataError>([&] { return train(world, experiment_of(folder_.path()), {}); }),
        HasSubstr("105.jpg: is no JPEG"));
  });
}

// Each of them decodes training images, and test images later.
TEST_F(FolderTest, TheMemoryOfDecodersCounts) {
  const auto peak_with = [&](std::int64_t decoders) {
    Experiment experiment = experiment_of(folder_.path());
    experiment.data.decoders = decoders;
    experiment.train.max_steps = 1;
    std::uint64_t peak = 0;
    TrainerOptions options;
    options.observer.on_end = [&](const RunSummary& summary) { peak = summary.peak_bytes; };
    rondo::test::World{1}.run(
        [&](transport::World& world) { static_cast<void>(train(world, experiment, options)); });
    return peak;
  };

  const std::uint64_t image = 28 * 28 * 3;
  EXPECT_EQ(peak_with(3) - peak_with(1), 2 * 2 * (image + kept_for_decoding));
}

std::int64_t resident_bytes() {
  std::ifstream status("/proc/self/statm");
  std::int64_t size = 0;
  std::int64_t resident = 0;
  status >> size >> resident;
  return resident * 4096;
}

// 20,000 images of 224 x 224 would be 3 GB. They are links to one file.
TEST(FolderMemoryTest, DoesNotGrowWithTheSet) {
  const rondo::test::ScratchFolder folder;
  const auto file = folder.write("image.jpg", rondo::test::jpeg_of(gradient_image(256, 256)));
  for (const int count : {10000, 100}) {
    const std::filesystem::path set = folder.path() / (count > 1000 ? "train" : "val");
    for (const char* const name : {"one", "two"}) {
      std::filesystem::create_directories(set / name);
      for (int i = 0; i < count; ++i) {
        std::filesystem::create_hard_link(file, set / name / (std::to_string(i) + ".jpg"));
      }
    }
  }

  const std::int64_t before = resident_bytes();
  const Dataset dataset = list_folder(folder.path(), 224, 224);
  Loader loader(dataset, {.global_batch = 8, .largest_range = 8, .ahead = 2, .decoders = 2});
  for (std::int64_t step = 0; step < 60; ++step) {
    EXPECT_EQ(loader.load({0, step, 0, 8}).samples, 8);
    loader.prefetch({0, step + 1, 0, 8});
  }

  EXPECT_EQ(dataset.training.shape.n, 20000);
  EXPECT_LT(resident_bytes() - before, std::int64_t{48} << 20U);
}

}  // namespace
}  // namespace rondo::train::folder_test
