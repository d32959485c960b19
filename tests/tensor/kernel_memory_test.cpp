// What memory_of() says that a layer takes, against what it takes.

#include <cstddef>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <rondo/tensor/batch_norm.hpp>
#include <rondo/tensor/convolution.hpp>
#include <rondo/tensor/engine.hpp>
#include <rondo/tensor/fully_connected.hpp>
#include <rondo/tensor/kernel_memory.hpp>
#include <rondo/tensor/pooling.hpp>

#include "counting_resource.hpp"

namespace rondo::tensor::kernel_memory_test {
namespace {

using test::CountingResource;

/// Bytes that a `Layer` takes of an engine that has no other.
template <typename Layer, typename Spec>
std::size_t taken_by(const Spec& spec, int threads = 1) {
  CountingResource memory;
  Engine engine(threads, &memory);
  const Layer layer(engine, spec);
  return memory.bytes();
}

template <typename Layer, typename Spec>
void expect_told(const Spec& spec, int threads = 1) {
  Engine engine(threads);
  const KernelMemory told = memory_of(engine, spec);
  EXPECT_EQ(told.own + told.scratchpad + told.reorder_buffer, taken_by<Layer>(spec, threads));
}

ConvolutionSpec convolution(std::int64_t n, std::int64_t side, std::int64_t channels,
                            std::int64_t filters, std::int64_t kernel, std::int64_t stride) {
  const std::int64_t padding = kernel / 2;
  return {.input = {n, side, side, channels},
          .filters = filters,
          .kernel_h = kernel,
          .kernel_w = kernel,
          .stride = stride,
          .pad_top = padding,
          .pad_bottom = padding,
          .pad_left = padding,
          .pad_right = padding};
}

TEST(KernelMemoryTest, ToldOfConvolutionsIsTaken) {
  for (const int threads : {1, 2}) {
    for (const std::int64_t n : {1, 4, 32}) {
      expect_told<Convolution>(convolution(n, 28, 1, 6, 5, 1), threads);
      expect_told<Convolution>(convolution(n, 32, 16, 16, 3, 1), threads);
      expect_told<Convolution>(convolution(n, 32, 16, 32, 3, 2), threads);
      expect_told<Convolution>(convolution(n, 32, 16, 32, 1, 2), threads);
      expect_told<Convolution>(convolution(n, 8, 64, 64, 3, 1), threads);
    }
  }
}

TEST(KernelMemoryTest, ToldOfFullyConnectedLayersIsTaken) {
  for (const std::int64_t n : {1, 4, 32}) {
    expect_told<FullyConnected>(FullyConnectedSpec{.input = {n, 6, 6, 256}, .outputs = 512});
    expect_told<FullyConnected>(FullyConnectedSpec{.input = {n, 1, 1, 120}, .outputs = 84});
  }
}

TEST(KernelMemoryTest, ToldOfPoolingIsTaken) {
  expect_told<Pooling>(PoolingSpec{.input = {4, 28, 28, 6}});
  expect_told<Pooling>(PoolingSpec{
      .input = {4, 8, 8, 64}, .kind = PoolingKind::average, .window_h = 8, .window_w = 8});
}

TEST(KernelMemoryTest, ToldOfBatchNormIsTaken) {
  for (const int threads : {1, 2}) {
    expect_told<BatchNorm>(BatchNormSpec{.input = {4, 8, 8, 24}}, threads);
  }
  Engine engine;
  const BatchNormSpec spec{.input = {4, 8, 8, 24}};
  EXPECT_EQ(memory_of(engine, spec, true).own, memory_of(engine, spec).own + 49 * sizeof(double));
}

TEST(KernelMemoryTest, AnEmptyBatchTakesNothing) {
  expect_told<Convolution>(convolution(0, 8, 16, 16, 3, 1));
  expect_told<FullyConnected>(FullyConnectedSpec{.input = {0, 1, 1, 120}, .outputs = 84});
  expect_told<Pooling>(PoolingSpec{.input = {0, 28, 28, 6}});
}

// The gradient of the second layer takes the place of the first one's.
TEST(KernelMemoryTest, LayersShareTheRoomForGradientsOfWeights) {
  const ConvolutionSpec spec = convolution(4, 8, 64, 64, 3, 1);
  CountingResource memory;
  Engine engine(1, &memory);
  const KernelMemory told = memory_of(engine, spec);

  const Convolution first(engine, spec);
  const std::size_t of_first = memory.bytes();
  const Convolution second(engine, spec);

  EXPECT_GT(told.reorder_buffer, 0U);
  EXPECT_EQ(memory.bytes() - of_first, told.own);
}

TEST(KernelMemoryTest, AnotherBatchSizeTakesNoRoomForGradientsOfWeights) {
  CountingResource memory;
  Engine engine(1, &memory);
  Convolution full(engine, convolution(32, 8, 64, 64, 3, 1));
  const std::size_t of_full = memory.bytes();

  const Convolution last(full, 16);

  EXPECT_EQ(memory.bytes(), of_full);
}

TEST(KernelMemoryTest, EvaluationTakesNoMemoryForGradients) {
  Engine engine;
  ConvolutionSpec convolves = convolution(4, 8, 64, 64, 3, 1);
  const std::size_t trained = memory_of(engine, convolves).own;
  convolves.input_gradient = InputGradient::unused;
  convolves.weight_gradient = WeightGradient::unused;
  FullyConnectedSpec connects{.input = {4, 1, 1, 120}, .outputs = 84};
  connects.input_gradient = InputGradient::unused;
  connects.weight_gradient = WeightGradient::unused;
  const PoolingSpec pools{.input = {4, 28, 28, 6}, .input_gradient = InputGradient::unused};

  EXPECT_LT(memory_of(engine, convolves).own, trained);
  EXPECT_EQ(memory_of(engine, convolves).reorder_buffer, 0U);
  EXPECT_EQ(memory_of(engine, connects).reorder_buffer, 0U);
  EXPECT_EQ(memory_of(engine, pools).own, 0U);
  expect_told<Convolution>(convolves);
  expect_told<FullyConnected>(connects);
  expect_told<Pooling>(pools);
}

}  // namespace
}  // namespace rondo::tensor::kernel_memory_test
