// From [data] to a data set.

#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <rondo/train/dataset.hpp>

#include "support/scratch_folder.hpp"
#include "train/data_files.hpp"
#include "train/error_text.hpp"

namespace rondo::train::load_dataset_test {
namespace {

using rondo::test::error_text;
using testing::HasSubstr;

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

}  // namespace
}  // namespace rondo::train::load_dataset_test
