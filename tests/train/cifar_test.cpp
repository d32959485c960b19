// The binary files of CIFAR-10 and CIFAR-100, whole and damaged.

#include <filesystem>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <rondo/train/dataset.hpp>

#include "support/scratch_folder.hpp"
#include "train/data_files.hpp"
#include "train/error_text.hpp"

namespace rondo::train::cifar_test {
namespace {

using rondo::test::error_text;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

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

class Cifar100Test : public testing::Test {
 protected:
  Cifar100Test() {
    folder_.write("train.bin", rondo::test::cifar100_records({99, 0, 17}));
    folder_.write("test.bin", rondo::test::cifar100_records({42}));
  }

  std::string error() const {
    return error_text<DataError>([this] { return read_cifar100(folder_.path()); });
  }

  rondo::test::ScratchFolder folder_;
};

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
  rondo::test::Bytes bytes = rondo::test::cifar100_records({3, 4});
  bytes.resize(bytes.size() - 3000);
  folder_.write("train.bin", bytes);
  EXPECT_THAT(error(), HasSubstr("train.bin: is truncated: record 1 (at byte 3074) has 74 of "
                                 "3074 bytes"));

  folder_.write("train.bin", rondo::test::cifar100_records({3, 100}));
  EXPECT_THAT(error(), HasSubstr("train.bin: label 100 of record 1 (at byte 3074) is out of range "
                                 "0..99"));
}

}  // namespace
}  // namespace rondo::train::cifar_test
