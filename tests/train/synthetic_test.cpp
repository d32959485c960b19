// Images without files: the same for the same options, and possible to learn.

#include <cstdint>
#include <stdexcept>
#include <vector>

#include <gtest/gtest.h>

#include <rondo/train/dataset.hpp>

namespace rondo::train::synthetic_test {
namespace {

// The mean image of every class.
std::vector<std::vector<double>> class_means(const Dataset& dataset) {
  const auto image = static_cast<std::size_t>(dataset.training.shape.image());
  std::vector<std::vector<double>> means(static_cast<std::size_t>(dataset.classes),
                                         std::vector<double>(image));
  std::vector<double> counts(means.size());
  for (std::size_t i = 0; i < dataset.training.labels.size(); ++i) {
    const auto label = static_cast<std::size_t>(dataset.training.labels[i]);
    counts[label] += 1.0;
    for (std::size_t k = 0; k < image; ++k) {
      means[label][k] += dataset.training.pixels[i * image + k];
    }
  }
  for (std::size_t label = 0; label < means.size(); ++label) {
    for (double& value : means[label]) value /= counts[label];
  }
  return means;
}

std::size_t nearest_class(const std::vector<std::vector<double>>& means,
                          const std::uint8_t* pixel) {
  std::size_t best = 0;
  double least = 1e300;
  for (std::size_t label = 0; label < means.size(); ++label) {
    double distance = 0.0;
    for (std::size_t k = 0; k < means[label].size(); ++k) {
      const double difference = pixel[k] - means[label][k];
      distance += difference * difference;
    }
    if (distance < least) {
      least = distance;
      best = label;
    }
  }
  return best;
}

TEST(SyntheticTest, IsTheSameForTheSameOptions) {
  const SyntheticOptions options{.shape = {0, 5, 7, 3}, .training = 40, .test = 20, .seed = 3};
  const Dataset one = make_synthetic(options);
  const Dataset two = make_synthetic(options);
  EXPECT_EQ(one.training.pixels, two.training.pixels);
  EXPECT_EQ(one.test.pixels, two.test.pixels);
  EXPECT_EQ(one.mean, two.mean);
}

TEST(SyntheticTest, KeepsItsImagesFromReleaseToRelease) {
  const Dataset dataset = make_synthetic({.shape = {0, 28, 28, 1}, .training = 3, .test = 1});
  std::uint64_t hash = 14695981039346656037U;  // FNV-1a
  for (const std::uint8_t pixel : dataset.training.pixels) hash = (hash ^ pixel) * 1099511628211U;
  EXPECT_EQ(hash, 17277167235682313537U);
}

TEST(SyntheticTest, DependsOnTheSeed) {
  SyntheticOptions options{.training = 10, .test = 1};
  const Dataset one = make_synthetic(options);
  options.seed = 2;
  EXPECT_NE(make_synthetic(options).training.pixels, one.training.pixels);
}

TEST(SyntheticTest, BeginsAlikeWhateverTheNumberOfImages) {
  const Dataset few = make_synthetic({.training = 3, .test = 1});
  std::vector<std::uint8_t> many = make_synthetic({.training = 30, .test = 1}).training.pixels;
  many.resize(few.training.pixels.size());
  EXPECT_EQ(many, few.training.pixels);
}

TEST(SyntheticTest, TestImagesDifferFromTrainingImages) {
  const Dataset dataset = make_synthetic({.training = 10, .test = 10});
  EXPECT_NE(dataset.training.pixels, dataset.test.pixels);
}

TEST(SyntheticTest, HasAnyShapeAndAnyNumberOfClasses) {
  for (const tensor::Shape shape : {tensor::Shape{0, 1, 1, 1}, {0, 3, 50, 2}, {0, 32, 32, 3}}) {
    const Dataset dataset =
        make_synthetic({.shape = shape, .classes = 3, .training = 7, .test = 2});

    EXPECT_EQ(dataset.training.shape, shape.with_n(7));
    EXPECT_EQ(dataset.test.shape, shape.with_n(2));
    EXPECT_EQ(dataset.training.pixels.size(), static_cast<std::size_t>(7 * shape.image()));
    EXPECT_EQ(dataset.training.labels, (std::vector<std::int32_t>{0, 1, 2, 0, 1, 2, 0}));
    EXPECT_EQ(dataset.mean.size(), static_cast<std::size_t>(shape.c));
  }
}

// A class's mean image blurs its shifts, so this is far from what a network reaches; guessing
// would be right in one case of ten.
TEST(SyntheticTest, ShowsItsClassesInItsPixels) {
  const Dataset dataset = make_synthetic({.training = 500, .test = 200});
  const auto means = class_means(dataset);
  int correct = 0;
  for (std::size_t i = 0; i < 200; ++i) {
    const std::size_t found = nearest_class(means, &dataset.test.pixels[i * 28 * 28]);
    correct += found == static_cast<std::size_t>(dataset.test.labels[i]) ? 1 : 0;
  }
  EXPECT_GT(correct, 80);
}

TEST(SyntheticTest, RefusesWhatHasNoExtent) {
  EXPECT_THROW(static_cast<void>(make_synthetic({.shape = {0, 0, 28, 1}})), std::invalid_argument);
  EXPECT_THROW(static_cast<void>(make_synthetic({.classes = 0})), std::invalid_argument);
  EXPECT_THROW(static_cast<void>(make_synthetic({.training = 0})), std::invalid_argument);
}

}  // namespace
}  // namespace rondo::train::synthetic_test
