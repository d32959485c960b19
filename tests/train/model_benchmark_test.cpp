// What `rondo bench model` is made of: a row for every kernel, and sums that agree with them.

#include <set>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <rondo/train/model_benchmark.hpp>

namespace rondo::train::model_benchmark_test {
namespace {

using testing::Contains;
using testing::IsSupersetOf;

std::set<std::string> rows_of(const PrimitiveTimes& times) {
  std::set<std::string> rows;
  for (const KernelTime& kernel : times.kernels) rows.insert(kernel.layer + " " + kernel.direction);
  return rows;
}

TEST(ModelBenchmarkTest, TimesEveryKernelOfAStep) {
  const PrimitiveTimes times = measure_primitives(make_model("lenet5"), 2, 1);

  EXPECT_THAT(rows_of(times),
              IsSupersetOf({"conv1 forward", "conv1 backward_weights", "pool1 forward",
                            "pool1 backward_data", "conv2 backward_data", "fc3 backward_weights",
                            "loss forward", "sgd update"}));
  EXPECT_THAT(rows_of(times), testing::Not(Contains("conv1 backward_data")));
}

TEST(ModelBenchmarkTest, TimesTheSameKernelsWithColdCaches) {
  const Model model = make_model("lenet5");

  EXPECT_EQ(rows_of(measure_primitives(model, 2, 1, KernelCaches::cold)),
            rows_of(measure_primitives(model, 2, 1)));
}

TEST(ModelBenchmarkTest, TimesBatchNormOfBothKinds) {
  Model model{.name = "norms", .input = {1, 8, 8, 16}, .classes = 2};
  model.layers = {{"bn1", BatchNormLayer{}, {0}},
                  {"bn2", BatchNormLayer{.residual = true}, {1, 0}},
                  {"pool", GlobalAveragePoolingLayer{}, {2}},
                  {"fc", FullyConnectedLayer{.outputs = 2}, {3}}};

  const PrimitiveTimes times = measure_primitives(model, 4, 1);

  EXPECT_THAT(rows_of(times),
              IsSupersetOf({"bn1 forward", "bn1 backward", "bn2 forward", "bn2 backward"}));
}

TEST(ModelBenchmarkTest, SumsItsRows) {
  PrimitiveTimes times{.batch = 10, .threads = 1};
  times.kernels = {{.layer = "a", .microseconds = 30.0}, {.layer = "b", .microseconds = 70.0}};

  EXPECT_DOUBLE_EQ(times.microseconds(), 100.0);
  EXPECT_DOUBLE_EQ(times.images_per_second(), 100'000.0);
}

TEST(ModelBenchmarkTest, NamesTheKernelsOfOnednn) {
  const PrimitiveTimes times = measure_primitives(make_model("lenet5"), 2, 1);

  for (const KernelTime& kernel : times.kernels) {
    EXPECT_GT(kernel.microseconds, 0.0) << kernel.layer;
    EXPECT_FALSE(kernel.implementation.empty()) << kernel.layer;
    EXPECT_EQ(kernel.implementation.find("ref"), std::string::npos) << kernel.layer;
  }
}

TEST(ModelBenchmarkTest, TimesAWholeStep) {
  Model model{.name = "tiny", .input = {1, 4, 4, 8}, .classes = 2};
  model.layers = {{"fc", FullyConnectedLayer{.outputs = 2}, {0}}};

  const StepTime time = measure_step(model, 3, 1);

  EXPECT_GT(time.microseconds, 0.0);
  EXPECT_DOUBLE_EQ(time.images_per_second(), 3e6 / time.microseconds);
}

}  // namespace
}  // namespace rondo::train::model_benchmark_test
