// Data sets in files, whole and damaged: idx, CIFAR-10 and CIFAR-100, and how they are found.

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

#include "support/error_text.hpp"
#include "support/scratch_folder.hpp"
#include "train/data_files.hpp"

namespace rondo::train::dataset_test {
namespace {

using rondo::test::Bytes;
using rondo::test::cifar_records;
using rondo::test::error_text;
using rondo::test::gzipped;
using rondo::test::idx_images;
using rondo::test::idx_labels;
using rondo::test::ScratchFolder;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

Dataset read_cifar10(const std::filesystem::path& folder) {
  return load_dataset({.name = "cifar10", .path = folder}, {}, 0);
}

Dataset read_cifar100(const std::filesystem::path& folder) {
  return load_dataset({.name = "cifar100", .path = folder}, {}, 0);
}

// A data set's files in a folder of their own, which are damaged and then read.
template <Dataset (*read)(const std::filesystem::path&), void (*write_files)(const ScratchFolder&)>
class FilesTest : public testing::Test {
 protected:
  FilesTest() { write_files(folder_); }

  std::string error() const {
    return error_text<DataError>([this] { return read(folder_.path()); });
  }

  ScratchFolder folder_;
};

// A file that is replaced, and what the error says.
struct Damage {
  std::string file;
  Bytes bytes;
  std::string said;
};

// Each by itself; a zipped file takes the place of the plain one.
void expect_named(Dataset (*read)(const std::filesystem::path&),
                  void (*write_files)(const ScratchFolder&), const std::vector<Damage>& damages) {
  for (const auto& [file, bytes, said] : damages) {
    const ScratchFolder folder;
    write_files(folder);
    std::filesystem::remove(folder.path() / file.substr(0, file.find(".gz")));
    folder.write(file, bytes);
    EXPECT_THAT(error_text<DataError>([&] { return read(folder.path()); }), HasSubstr(said));
  }
}

// idx files as MNIST and Fashion-MNIST have them, whole and damaged.

Bytes without_last(Bytes bytes, std::size_t count) {
  bytes.resize(bytes.size() - count);
  return bytes;
}

Bytes with_last(Bytes bytes, std::uint8_t last) {
  bytes.push_back(last);
  return bytes;
}

Bytes with_wrong_checksum(Bytes stream) {
  stream[stream.size() - 6] ^= 0xff;
  return stream;
}

Bytes words(std::initializer_list<std::uint32_t> numbers) {
  Bytes bytes;
  for (const std::uint32_t word : numbers) rondo::test::append_word(bytes, word);
  return bytes;
}

void write_idx(const ScratchFolder& folder) { rondo::test::write_idx_files(folder); }

using IdxTest = FilesTest<read_idx, write_idx>;

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
  folder_.write("train-images-idx3-ubyte.gz", gzipped(idx_images(3, 2, 4)));
  folder_.write("t10k-labels-idx1-ubyte.gz", gzipped(idx_labels({1, 2})));

  const Dataset zipped = read_idx(folder_.path());

  EXPECT_EQ(zipped.training.pixels, plain.training.pixels);
  EXPECT_EQ(zipped.test.labels, plain.test.labels);
}

TEST_F(IdxTest, MeasuresMeanAndDeviationOfTheTrainingPixels) {
  folder_.write("train-images-idx3-ubyte", idx_images(3, 1, 1));  // pixels 0, 1, 2
  folder_.write("t10k-images-idx3-ubyte", idx_images(2, 1, 1));
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

TEST_F(IdxTest, NamesTheDamagedFile) {
  expect_named(
      read_idx, write_idx,
      {{"train-images-idx3-ubyte", idx_labels({1, 2, 3}),
        "train-images-idx3-ubyte: begins with 00000801 instead of"},
       {"train-images-idx3-ubyte", idx_images(3, 0, 4), "announces 3 images of 0x4 pixels"},
       {"train-images-idx3-ubyte", without_last(idx_images(3, 2, 4), 5),
        "is truncated: the pixels end at byte 35, 5 bytes too early"},
       // 64 PB are not allocated.
       {"train-images-idx3-ubyte", words({0x803U, 0xffffffffU, 4096U, 4096U}), "is truncated"},
       {"train-labels-idx1-ubyte", with_last(idx_labels({7, 0, 9}), 0),
        "train-labels-idx1-ubyte: has unexpected bytes behind byte 11"},
       {"train-labels-idx1-ubyte.gz", with_last(gzipped(idx_labels({7, 0, 9})), '!'),
        "train-labels-idx1-ubyte.gz: has unexpected bytes behind byte 11"},
       {"train-images-idx3-ubyte.gz", with_wrong_checksum(gzipped(idx_images(3, 2, 4))),
        "train-images-idx3-ubyte.gz: is damaged"},
       {"train-labels-idx1-ubyte", idx_labels({7, 0}),
        "train-labels-idx1-ubyte: holds 2 labels for 3 images"},
       {"train-labels-idx1-ubyte", idx_labels({7, 10, 9}),
        "label 10 of record 1 (byte 9) is out of range 0..9"},
       {"t10k-images-idx3-ubyte", idx_images(2, 4, 4),
        "training images are 2x4, test images 4x4"}});
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

void write_cifar10(const ScratchFolder& folder) { rondo::test::write_cifar_files(folder); }

using Cifar10Test = FilesTest<read_cifar10, write_cifar10>;

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
  const ScratchFolder parent;
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

TEST_F(Cifar10Test, NamesTheDamagedFile) {
  expect_named(read_cifar10, write_cifar10,
               {{"data_batch_2.bin", without_last(cifar_records({3, 4}), 3000),
                 "data_batch_2.bin: is truncated: record 1 (at byte 3073) has 73 of 3073 bytes"},
                {"data_batch_5.bin", cifar_records({5}),
                 "data_batch_5.bin: holds 1 images, but data_batch_1.bin holds 2"},
                {"test_batch.bin", {}, "test_batch.bin: is empty"},
                {"test_batch.bin", with_last(gzipped(cifar_records({5})), '!'),
                 "test_batch.bin: has unexpected bytes behind byte 3073"},
                {"data_batch_3.bin", cifar_records({0, 200}),
                 "data_batch_3.bin: label 200 of record 1 (at byte 3073) is out of range 0..9"}});
}

// CIFAR-100 has one training file, and a coarse label in front of the fine one.

void write_cifar100(const ScratchFolder& folder) {
  folder.write("train.bin", rondo::test::cifar100_records({99, 0, 17}));
  folder.write("test.bin", rondo::test::cifar100_records({42}));
}

using Cifar100Test = FilesTest<read_cifar100, write_cifar100>;

TEST_F(Cifar100Test, ReadsFineLabelsAndPixels) {
  const Dataset dataset = read_cifar100(folder_.path());

  EXPECT_EQ(dataset.classes, 100);
  EXPECT_EQ(dataset.training.shape, (tensor::Shape{3, 32, 32, 3}));
  EXPECT_THAT(dataset.training.labels, ElementsAre(99, 0, 17));
  EXPECT_THAT(dataset.test.labels, ElementsAre(42));
  const std::uint8_t* pixel = &dataset.training.pixels[2 * 3072 + 3 * 77];
  EXPECT_THAT(std::vector<int>(pixel, pixel + 3), ElementsAre(17, 100, 77));
}

TEST_F(Cifar100Test, SaysWhatItLooksFor) {
  std::filesystem::remove(folder_.path() / "train.bin");

  EXPECT_THAT(error(), AllOf(HasSubstr("holds no train.bin"), HasSubstr("cifar-100-binary")));
}

TEST_F(Cifar100Test, NamesTheTruncatedRecordAndTheLabelOutOfRange) {
  expect_named(read_cifar100, write_cifar100,
               {{"train.bin", without_last(rondo::test::cifar100_records({3, 4}), 3000),
                 "train.bin: is truncated: record 1 (at byte 3074) has 74 of 3074 bytes"},
                {"train.bin", rondo::test::cifar100_records({3, 100}),
                 "train.bin: label 100 of record 1 (at byte 3074) is out of range 0..99"}});
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
  const ScratchFolder folder;
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

TEST(LoadDatasetTest, ARelativePathIsToldAsAWholeOne) {
  const std::string text = error_text<DataError>(
      [] { return load_dataset({.name = "cifar10", .path = "no-such-folder"}, model_input, 4); });
  EXPECT_THAT(text, HasSubstr((std::filesystem::current_path() / "no-such-folder").string()));
}

// Data files that are cut or changed anywhere: always a DataError or a data set, never a crash.

constexpr std::array idx_names = {"train-images-idx3-ubyte", "train-labels-idx1-ubyte",
                                  "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"};

Bytes idx_content(std::size_t file) {
  const std::array contents = {idx_images(3, 2, 4), idx_labels({7, 0, 9}), idx_images(2, 2, 4),
                               idx_labels({1, 2})};
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
void expect_every_cut_refused(const ScratchFolder& folder, const std::string& name,
                              const Bytes& whole) {
  for (std::size_t length = 0; length < whole.size(); ++length) {
    const auto end = whole.begin() + static_cast<std::ptrdiff_t>(length);
    folder.write(name, Bytes(whole.begin(), end));
    const std::string text = error_text<DataError>([&] { return read_idx(folder.path()); });
    ASSERT_NE(text.find(name), std::string::npos) << length << " bytes: " << text;
  }
}

TEST(DamagedFilesTest, IdxFilesCutAnywhereAreRefused) {
  for (const bool zipped : {false, true}) {
    for (std::size_t file = 0; file < idx_names.size(); ++file) {
      const ScratchFolder folder;
      rondo::test::write_idx_files(folder);
      std::filesystem::remove(folder.path() / idx_names.at(file));
      expect_every_cut_refused(folder, std::string(idx_names.at(file)) + (zipped ? ".gz" : ""),
                               zipped ? gzipped(idx_content(file)) : idx_content(file));
    }
  }
}

// Any change of one byte gives an error, or images that hold together.
TEST(DamagedFilesTest, IdxFilesChangedAnywhereAreRefusedOrSound) {
  for (const bool zipped : {false, true}) {
    for (std::size_t file = 0; file < idx_names.size(); ++file) {
      const ScratchFolder folder;
      rondo::test::write_idx_files(folder);
      std::filesystem::remove(folder.path() / idx_names.at(file));
      const std::string name = std::string(idx_names.at(file)) + (zipped ? ".gz" : "");
      const Bytes whole = zipped ? gzipped(idx_content(file)) : idx_content(file);
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
  const ScratchFolder folder;
  rondo::test::write_cifar_files(folder);
  const Bytes whole = cifar_records({3, 0});
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
  const ScratchFolder folder;
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
