// Data sets in files, whole and damaged: idx, CIFAR-10, and how they are found.

#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <random>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <rondo/train/dataset.hpp>

#include "support/scratch_folder.hpp"
#include "train/data_files.hpp"
#include "train/error_text.hpp"

namespace rondo::train::dataset_test {
namespace {

using rondo::test::Bytes;
using rondo::test::error_text;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

// idx files as MNIST and Fashion-MNIST have them, whole and damaged.

class IdxTest : public testing::Test {
 protected:
  IdxTest() { rondo::test::write_idx_files(folder_); }

  std::string error() const {
    return error_text<DataError>([this] { return read_idx(folder_.path()); });
  }

  rondo::test::ScratchFolder folder_;
};

TEST_F(IdxTest, ReadsImagesAndLabels) {
  const Dataset dataset = read_idx(folder_.path());

  EXPECT_EQ(dataset.classes, 10);
  EXPECT_EQ(dataset.training.shape, (tensor::Shape{3, 2, 4, 1}));
  EXPECT_EQ(dataset.test.shape, (tensor::Shape{2, 2, 4, 1}));
  EXPECT_THAT(dataset.training.labels, ElementsAre(7, 0, 9));
  EXPECT_THAT(dataset.test.labels, ElementsAre(1, 2));
  ASSERT_EQ(dataset.training.pixels.size(), 24U);
  EXPECT_EQ(dataset.training.pixels[23], 23);
}

TEST_F(IdxTest, ReadsGzippedFilesAlike) {
  const Dataset plain = read_idx(folder_.path());
  for (const char* name : {"train-images-idx3-ubyte", "t10k-labels-idx1-ubyte"}) {
    std::filesystem::remove(folder_.path() / name);
  }
  folder_.write("train-images-idx3-ubyte.gz",
                rondo::test::gzipped(rondo::test::idx_images(3, 2, 4)));
  folder_.write("t10k-labels-idx1-ubyte.gz", rondo::test::gzipped(rondo::test::idx_labels({1, 2})));

  const Dataset zipped = read_idx(folder_.path());

  EXPECT_EQ(zipped.training.pixels, plain.training.pixels);
  EXPECT_EQ(zipped.test.labels, plain.test.labels);
}

TEST_F(IdxTest, MeasuresMeanAndDeviationOfTheTrainingPixels) {
  folder_.write("train-images-idx3-ubyte", rondo::test::idx_images(3, 1, 1));  // pixels 0, 1, 2
  folder_.write("t10k-images-idx3-ubyte", rondo::test::idx_images(2, 1, 1));

  const Dataset dataset = read_idx(folder_.path());

  EXPECT_THAT(dataset.mean, ElementsAre(testing::FloatEq(1.0F / 255.0F)));
  EXPECT_THAT(dataset.stddev, ElementsAre(testing::FloatEq(0.81649658F / 255.0F)));
}

TEST_F(IdxTest, NamesTheMissingFolder) {
  const std::string text =
      error_text<DataError>([this] { return read_idx(folder_.path() / "nowhere"); });

  EXPECT_THAT(text,
              AllOf(HasSubstr("nowhere: no such folder"), HasSubstr("dataset-fashion-mnist")));
}

TEST_F(IdxTest, NamesTheMissingFile) {
  std::filesystem::remove(folder_.path() / "t10k-labels-idx1-ubyte");

  EXPECT_THAT(error(), AllOf(HasSubstr("/t10k-labels-idx1-ubyte: no such file"),
                             HasSubstr("install Debian's package dataset-fashion-mnist")));
}

TEST_F(IdxTest, RefusesAFolderInPlaceOfAFile) {
  std::filesystem::remove(folder_.path() / "t10k-labels-idx1-ubyte");
  std::filesystem::create_directory(folder_.path() / "t10k-labels-idx1-ubyte");

  EXPECT_THAT(error(), HasSubstr("t10k-labels-idx1-ubyte: cannot be read"));
}

TEST_F(IdxTest, RefusesAWrongMagicNumber) {
  folder_.write("train-images-idx3-ubyte", rondo::test::idx_labels({1, 2, 3}));

  EXPECT_THAT(error(), HasSubstr("train-images-idx3-ubyte: begins with 00000801 instead of"));
}

TEST_F(IdxTest, RefusesImagesWithoutExtent) {
  folder_.write("train-images-idx3-ubyte", rondo::test::idx_images(3, 0, 4));

  EXPECT_THAT(error(), HasSubstr("announces 3 images of 0x4 pixels"));
}

TEST_F(IdxTest, SaysHowMuchOfATruncatedFileIsMissing) {
  rondo::test::Bytes bytes = rondo::test::idx_images(3, 2, 4);
  bytes.resize(bytes.size() - 5);
  folder_.write("train-images-idx3-ubyte", bytes);

  EXPECT_THAT(error(), HasSubstr("is truncated: the pixels end at byte 35, 5 bytes too early"));
}

TEST_F(IdxTest, DoesNotAllocateWhatAHugeHeaderAnnounces) {
  rondo::test::Bytes bytes;
  for (const std::uint32_t word : {0x803U, 0xffffffffU, 4096U, 4096U}) {
    rondo::test::append_word(bytes, word);
  }
  folder_.write("train-images-idx3-ubyte", bytes);

  EXPECT_THAT(error(), HasSubstr("is truncated"));
}

TEST_F(IdxTest, RefusesTrailingBytes) {
  rondo::test::Bytes bytes = rondo::test::idx_labels({7, 0, 9});
  bytes.push_back(0);
  folder_.write("train-labels-idx1-ubyte", bytes);

  EXPECT_THAT(error(), HasSubstr("train-labels-idx1-ubyte: has unexpected bytes behind byte 11"));
}

TEST_F(IdxTest, RefusesTrailingBytesBehindAGzipStream) {
  std::filesystem::remove(folder_.path() / "train-labels-idx1-ubyte");
  rondo::test::Bytes bytes = rondo::test::gzipped(rondo::test::idx_labels({7, 0, 9}));
  bytes.push_back('!');
  folder_.write("train-labels-idx1-ubyte.gz", bytes);

  EXPECT_THAT(error(),
              HasSubstr("train-labels-idx1-ubyte.gz: has unexpected bytes behind byte 11"));
}

TEST_F(IdxTest, RefusesADamagedGzipStream) {
  std::filesystem::remove(folder_.path() / "train-images-idx3-ubyte");
  rondo::test::Bytes bytes = rondo::test::gzipped(rondo::test::idx_images(3, 2, 4));
  bytes[bytes.size() - 6] ^= 0xff;  // the checksum
  folder_.write("train-images-idx3-ubyte.gz", bytes);

  EXPECT_THAT(error(), HasSubstr("train-images-idx3-ubyte.gz: is damaged"));
}

TEST_F(IdxTest, RefusesAnotherNumberOfLabelsThanImages) {
  folder_.write("train-labels-idx1-ubyte", rondo::test::idx_labels({7, 0}));

  EXPECT_THAT(error(), HasSubstr("train-labels-idx1-ubyte: holds 2 labels for 3 images"));
}

TEST_F(IdxTest, NamesTheRecordOfALabelOutOfRange) {
  folder_.write("train-labels-idx1-ubyte", rondo::test::idx_labels({7, 10, 9}));

  EXPECT_THAT(error(), HasSubstr("label 10 of record 1 (byte 9) is out of range 0..9"));
}

TEST_F(IdxTest, RefusesTestImagesOfAnotherSize) {
  folder_.write("t10k-images-idx3-ubyte", rondo::test::idx_images(2, 4, 4));

  EXPECT_THAT(error(), HasSubstr("training images are 2x4, test images 4x4"));
}

TEST(FashionMnistTest, HasTheWellKnownMeanAndDeviation) {
  const std::filesystem::path folder = "/usr/share/datasets/fashion-mnist";
  if (!std::filesystem::exists(folder)) GTEST_SKIP() << "needs dataset-fashion-mnist";

  const Dataset dataset = read_idx(folder);

  EXPECT_EQ(dataset.training.shape, (tensor::Shape{60'000, 28, 28, 1}));
  EXPECT_EQ(dataset.test.shape, (tensor::Shape{10'000, 28, 28, 1}));
  EXPECT_NEAR(dataset.mean.at(0), 0.2860, 5e-5);
  EXPECT_NEAR(dataset.stddev.at(0), 0.3530, 5e-5);
}

// CIFAR-10's binary files, whole and damaged.

class Cifar10Test : public testing::Test {
 protected:
  Cifar10Test() { rondo::test::write_cifar_files(folder_); }

  std::string error() const {
    return error_text<DataError>([this] { return read_cifar10(folder_.path()); });
  }

  rondo::test::ScratchFolder folder_;
};

TEST_F(Cifar10Test, ReadsTheFiveTrainingFilesInOrder) {
  const Dataset dataset = read_cifar10(folder_.path());

  EXPECT_EQ(dataset.classes, 10);
  EXPECT_EQ(dataset.training.shape, (tensor::Shape{10, 32, 32, 3}));
  EXPECT_EQ(dataset.test.shape, (tensor::Shape{1, 32, 32, 3}));
  EXPECT_THAT(dataset.training.labels, ElementsAre(1, 0, 2, 0, 3, 0, 4, 0, 5, 0));
  EXPECT_THAT(dataset.test.labels, ElementsAre(9));
}

TEST_F(Cifar10Test, MakesPixelsOfPlanes) {
  const Dataset dataset = read_cifar10(folder_.path());

  ASSERT_EQ(dataset.training.pixels.size(), 10U * 3072U);
  for (std::size_t i : {0U, 1U, 77U, 1023U}) {
    const std::uint8_t* pixel = &dataset.training.pixels[2 * 3072 + 3 * i];
    EXPECT_EQ(pixel[0], 2) << "red of pixel " << i;
    EXPECT_EQ(pixel[1], 100) << "green of pixel " << i;
    EXPECT_EQ(pixel[2], i % 256) << "blue of pixel " << i;
  }
}

TEST_F(Cifar10Test, GivesAConstantChannelADeviationOfOne) {
  const Dataset dataset = read_cifar10(folder_.path());

  EXPECT_FLOAT_EQ(dataset.mean.at(1), 100.0F / 255.0F);
  EXPECT_EQ(dataset.stddev.at(1), 1.0F);
}

TEST_F(Cifar10Test, FindsTheSubfolderOfTheArchive) {
  const rondo::test::ScratchFolder parent;
  std::filesystem::create_directory(parent.path() / "cifar-10-batches-bin");
  rondo::test::write_cifar_files(parent, "cifar-10-batches-bin/");

  EXPECT_EQ(read_cifar10(parent.path()).training.shape.n, 10);
}

TEST_F(Cifar10Test, SaysWhatItLooksFor) {
  std::filesystem::remove(folder_.path() / "data_batch_1.bin");

  EXPECT_THAT(error(), AllOf(HasSubstr("holds no data_batch_1.bin"),
                             HasSubstr("cifar-10-batches-bin"), HasSubstr("set data.path")));
}

TEST_F(Cifar10Test, NamesTheMissingFile) {
  std::filesystem::remove(folder_.path() / "data_batch_4.bin");

  EXPECT_THAT(error(), HasSubstr("data_batch_4.bin: cannot be opened (No such file"));
}

TEST_F(Cifar10Test, NamesTheTruncatedRecord) {
  rondo::test::Bytes bytes = rondo::test::cifar_records({3, 4});
  bytes.resize(bytes.size() - 3000);
  folder_.write("data_batch_2.bin", bytes);

  EXPECT_THAT(error(), HasSubstr("data_batch_2.bin: is truncated: record 1 (at byte 3073) has 73 "
                                 "of 3073 bytes"));
}

TEST_F(Cifar10Test, NoticesAFileThatEndsBetweenRecords) {
  folder_.write("data_batch_5.bin", rondo::test::cifar_records({5}));

  EXPECT_THAT(error(), HasSubstr("data_batch_5.bin: holds 1 images, but data_batch_1.bin holds 2"));
}

TEST_F(Cifar10Test, RefusesAnEmptyFile) {
  folder_.write("test_batch.bin", rondo::test::Bytes{});

  EXPECT_THAT(error(), HasSubstr("test_batch.bin: is empty"));
}

TEST_F(Cifar10Test, NamesTheRecordOfALabelOutOfRange) {
  folder_.write("data_batch_3.bin", rondo::test::cifar_records({0, 200}));

  EXPECT_THAT(error(), HasSubstr("data_batch_3.bin: label 200 of record 1 (at byte 3073) is out "
                                 "of range 0..9"));
}

// From [data] to a data set.

constexpr tensor::Shape model_input{0, 8, 9, 2};

TEST(LoadDatasetTest, SyntheticTakesShapeAndClassesOfTheModel) {
  const Experiment::Data data{.name = "synthetic", .training = 6, .test = 2};

  const Dataset dataset = load_dataset(data, model_input, 4);

  EXPECT_EQ(dataset.training.shape, model_input.with_n(6));
  EXPECT_EQ(dataset.classes, 4);
}

TEST(LoadDatasetTest, SyntheticTakesShapeAndClassesOfTheExperiment) {
  const Experiment::Data data{
      .name = "synthetic", .shape = {3, 5, 1}, .classes = 2, .training = 6, .test = 2};

  const Dataset dataset = load_dataset(data, model_input, 4);

  EXPECT_EQ(dataset.training.shape, (tensor::Shape{6, 3, 5, 1}));
  EXPECT_EQ(dataset.classes, 2);
}

TEST(LoadDatasetTest, ReadsThePathThatIsGiven) {
  const rondo::test::ScratchFolder folder;
  rondo::test::write_idx_files(folder);
  rondo::test::write_cifar_files(folder);

  const Dataset idx =
      load_dataset({.name = "fashion-mnist", .path = folder.path()}, model_input, 4);
  const Dataset cifar = load_dataset({.name = "cifar10", .path = folder.path()}, model_input, 4);

  EXPECT_EQ(idx.training.shape.n, 3);
  EXPECT_EQ(cifar.training.shape.n, 10);
}

TEST(LoadDatasetTest, Cifar10NeedsAPath) {
  const std::string text =
      error_text<ConfigError>([] { return load_dataset({.name = "cifar10"}, model_input, 4); });

  EXPECT_THAT(text, HasSubstr("data.path: missing; set it to the folder with data_batch_1.bin"));
}

// Data files that are cut or changed anywhere: always a DataError or a data set, never a crash.

constexpr std::array idx_names = {"train-images-idx3-ubyte", "train-labels-idx1-ubyte",
                                  "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"};

Bytes idx_content(std::size_t file) {
  const std::array contents = {rondo::test::idx_images(3, 2, 4), rondo::test::idx_labels({7, 0, 9}),
                               rondo::test::idx_images(2, 2, 4), rondo::test::idx_labels({1, 2})};
  return contents.at(file);
}

// Pixels, labels and shapes agree.
void expect_sound(const Dataset& dataset) {
  for (const Images* images : {&dataset.training, &dataset.test}) {
    EXPECT_EQ(images->pixels.size(), static_cast<std::size_t>(images->shape.size()));
    EXPECT_EQ(images->labels.size(), static_cast<std::size_t>(images->shape.n));
    for (const std::int32_t label : images->labels) {
      EXPECT_GE(label, 0);
      EXPECT_LT(label, dataset.classes);
    }
  }
}

// Cuts `whole` at every length; every cut file must be refused by name.
void expect_every_cut_refused(const rondo::test::ScratchFolder& folder, const std::string& name,
                              const Bytes& whole) {
  for (std::size_t length = 0; length < whole.size(); ++length) {
    const auto end = whole.begin() + static_cast<std::ptrdiff_t>(length);
    folder.write(name, Bytes(whole.begin(), end));
    const std::string text = error_text<DataError>([&] { return read_idx(folder.path()); });
    ASSERT_NE(text.find(name), std::string::npos) << length << " bytes: " << text;
  }
}

TEST(DamagedFilesTest, IdxFilesCutAnywhereAreRefused) {
  for (std::size_t file = 0; file < idx_names.size(); ++file) {
    const rondo::test::ScratchFolder folder;
    rondo::test::write_idx_files(folder);

    expect_every_cut_refused(folder, idx_names.at(file), idx_content(file));
  }
}

TEST(DamagedFilesTest, GzippedIdxFilesCutAnywhereAreRefused) {
  for (std::size_t file = 0; file < idx_names.size(); ++file) {
    const rondo::test::ScratchFolder folder;
    rondo::test::write_idx_files(folder);
    std::filesystem::remove(folder.path() / idx_names.at(file));

    expect_every_cut_refused(folder, std::string(idx_names.at(file)) + ".gz",
                             rondo::test::gzipped(idx_content(file)));
  }
}

// Any change of one byte gives an error, or images that hold together.
TEST(DamagedFilesTest, IdxFilesChangedAnywhereAreRefusedOrSound) {
  for (const bool zipped : {false, true}) {
    for (std::size_t file = 0; file < idx_names.size(); ++file) {
      const rondo::test::ScratchFolder folder;
      rondo::test::write_idx_files(folder);
      std::filesystem::remove(folder.path() / idx_names.at(file));
      const std::string name = std::string(idx_names.at(file)) + (zipped ? ".gz" : "");
      const Bytes whole = zipped ? rondo::test::gzipped(idx_content(file)) : idx_content(file);
      for (std::size_t place = 0; place < whole.size(); ++place) {
        Bytes changed = whole;
        changed[place] ^= 0x81;
        folder.write(name, changed);
        try {
          expect_sound(read_idx(folder.path()));
        } catch (const DataError&) {  // the other good answer
        }
      }
    }
  }
}

// A CIFAR file is six kilobytes: cut at both ends of each record, and at places drawn between.
TEST(DamagedFilesTest, CifarFilesCutAnywhereAreRefused) {
  const rondo::test::ScratchFolder folder;
  rondo::test::write_cifar_files(folder);
  const Bytes whole = rondo::test::cifar_records({3, 0});
  std::mt19937 random(1);

  std::vector<std::size_t> lengths = {0, 1, 2, 1024, 1025, 3072, 3073, 3074, 6145};
  for (int i = 0; i < 60; ++i) lengths.push_back(random() % whole.size());

  for (const std::size_t length : lengths) {
    const auto end = whole.begin() + static_cast<std::ptrdiff_t>(length);
    folder.write("data_batch_3.bin", Bytes(whole.begin(), end));
    const std::string text = error_text<DataError>([&] { return read_cifar10(folder.path()); });
    ASSERT_NE(text.find("data_batch_3.bin"), std::string::npos) << length << " bytes: " << text;
  }
}

TEST(DamagedFilesTest, RandomBytesAreNoImages) {
  const rondo::test::ScratchFolder folder;
  rondo::test::write_idx_files(folder);
  rondo::test::write_cifar_files(folder);
  std::mt19937 random(2);

  for (int round = 0; round < 50; ++round) {
    Bytes noise(random() % 5000);
    for (std::uint8_t& byte : noise) byte = static_cast<std::uint8_t>(random());
    folder.write("train-images-idx3-ubyte", noise);
    folder.write("test_batch.bin", noise);

    error_text<DataError>([&] { return read_idx(folder.path()); });
    error_text<DataError>([&] { return read_cifar10(folder.path()); });
  }
}

}  // namespace
}  // namespace rondo::train::dataset_test
