// idx files as MNIST and Fashion-MNIST have them, whole and damaged.

#include <filesystem>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <rondo/train/dataset.hpp>

#include "support/scratch_folder.hpp"
#include "train/data_files.hpp"
#include "train/error_text.hpp"

namespace rondo::train::idx_test {
namespace {

using rondo::test::error_text;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

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

}  // namespace
}  // namespace rondo::train::idx_test
