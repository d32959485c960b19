// The promises of an Engine, and the memory that layers take of it.

#include <pmmintrin.h>

#include <algorithm>
#include <cstddef>
#include <memory>
#include <stdexcept>
#include <thread>
#include <vector>

#ifdef _OPENMP
#include <omp.h>
#endif

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <rondo/tensor/batch_norm.hpp>
#include <rondo/tensor/convolution.hpp>
#include <rondo/tensor/elementwise.hpp>
#include <rondo/tensor/engine.hpp>
#include <rondo/tensor/fully_connected.hpp>
#include <rondo/tensor/kernel_memory.hpp>
#include <rondo/tensor/pooling.hpp>
#include <rondo/tensor/tensor.hpp>

#include "data.hpp"
#include "support/counting_resource.hpp"

namespace rondo::tensor::engine_test {
namespace {

using rondo::test::CountingResource;
using test::whole_tensor;
using test::whole_values;

// The promises of an Engine: its thread count, its memory, and denormals flushed to zero.

TEST(EngineTest, KnowsItsThreadsAndItsMemory) {
  CountingResource memory;
  const Engine engine(3, &memory);
  EXPECT_EQ(engine.threads(), 3);
  EXPECT_EQ(engine.memory(), &memory);
}

TEST(EngineTest, RefusesToRunOnNoThread) { EXPECT_THROW(Engine(0), std::invalid_argument); }

// An Engine gives the host program its own setting back.
TEST(EngineTest, GivesTheHostProgramItsDenormalsBack) {
  const unsigned before = _mm_getcsr();
  {
    const Engine first(2);
    const auto second = std::make_unique<Engine>(1);
    EXPECT_NE(_mm_getcsr(), before);
  }
  EXPECT_EQ(_mm_getcsr(), before);
}

// A thread that has ended leaves its id to the next one.
TEST(EngineTest, EndsOnAnotherThreadAndLeavesThatAsItIs) {
  std::unique_ptr<Engine> engine;
  std::thread([&] { engine = std::make_unique<Engine>(2); }).join();
  std::thread([&] {
    const unsigned before = _mm_getcsr();
    engine.reset();
    EXPECT_EQ(_mm_getcsr(), before);
  }).join();
}

#ifdef _OPENMP
TEST(EngineTest, GivesTheHostProgramItsTeamBack) {
  const int before = omp_get_max_threads();
  const unsigned control = _mm_getcsr();
  omp_set_num_threads(3);
  {
    const Engine engine(2);
  }
  EXPECT_EQ(omp_get_max_threads(), 3);
  std::vector<unsigned> controls(3, ~control);
#pragma omp parallel num_threads(3)
  controls[static_cast<std::size_t>(omp_get_thread_num())] = _mm_getcsr();
  for (const unsigned one : controls) EXPECT_EQ(one, control);
  omp_set_num_threads(before);
}

// As within a parallel region: oneDNN would wait for threads that are not there.
TEST(EngineTest, RefusesCallsWhereNoTeamCanBeMadeAlsoAfterTheFirst) {
  Engine engine(2);
  std::vector<float> values(4096, 1.0F);
  const View<float> view(values.data(), {1, 1, 1, 4096});
  add(engine, View<const float>(view), view);
  const int levels = omp_get_max_active_levels();
  omp_set_max_active_levels(0);

  EXPECT_THROW(add(engine, View<const float>(view), view), std::runtime_error);

  omp_set_max_active_levels(levels);
  EXPECT_NO_THROW(add(engine, View<const float>(view), view));
}
#endif

TEST(EngineTest, NamesWhatItRunsOn) {
  EXPECT_THAT(instruction_set(), testing::AnyOf("baseline", "avx2", "avx512", "avx512_bf16"));
  EXPECT_THAT(onednn_version(),
              testing::AnyOf(testing::StartsWith("2."), testing::StartsWith("3.")));
  EXPECT_THAT(kernel_set(), testing::StartsWith("oneDNN " + onednn_version()));
  EXPECT_THAT(kernel_set(), testing::EndsWith(instruction_set()));
}

TEST(EngineTest, MemoryIsTakenWhenKernelsAreMadeAndNotWhenTheyRun) {
  CountingResource memory;
  {
    Engine engine(1, &memory);
    const ConvolutionSpec spec{.input = {3, 8, 8, 6}, .filters = 16, .bias = true};
    Convolution layer(engine, spec);
    BatchNorm norm(engine, {.input = spec.output()});
    const std::size_t made = memory.allocations();
    EXPECT_GT(made, 0U);

    auto weights = whole_values(spec.weights(), 1);
    auto bias = whole_values(16, 2);
    Tensor x = whole_tensor(spec.input, 3);
    Tensor y(spec.output());
    Tensor z(spec.output());
    layer.pack_weights(weights);
    layer.forward(x.view(), bias, y.view());
    norm.forward_training(y.view(), {}, {bias, bias}, bias, bias, z.view());
    layer.backward_weights(x.view(), y.view(), bias);
    layer.unpack_gradients(weights);
    layer.backward_data(y.view(), x.view());
    EXPECT_EQ(memory.allocations(), made);
  }
  EXPECT_EQ(memory.bytes(), 0U);
}

// Every part of the tensor is added by another thread.
class DenormalTest : public testing::TestWithParam<int> {};

TEST_P(DenormalTest, AreFlushedOnEveryThread) {
  Engine engine(GetParam());
  Tensor a({64, 4, 4, 16});
  Tensor b({64, 4, 4, 16});
  std::ranges::fill(a.span(), 0x1p-120F);
  std::ranges::fill(b.span(), -0x1p-120F * (1.0F + 0x1p-10F));  // the sum is denormal
  add(engine, a.view(), b.view());
  for (std::size_t i = 0; i < b.span().size(); ++i) EXPECT_EQ(b.span()[i], 0.0F) << i;
}

INSTANTIATE_TEST_SUITE_P(Threads, DenormalTest, testing::Values(1, 2, 4));

// The bytes that a layer takes according to memory_of(), against those that it really takes.

/// Bytes that a `Layer` takes of an engine that has no other.
template <typename Layer, typename Spec>
std::size_t taken_by(const Spec& spec, int threads, ConvolutionAlgorithm convolutions) {
  CountingResource memory;
  Engine engine(threads, &memory, convolutions);
  const Layer layer(engine, spec);
  return memory.bytes();
}

template <typename Layer, typename Spec>
void expect_told(const Spec& spec, int threads = 1,
                 ConvolutionAlgorithm convolutions = ConvolutionAlgorithm::direct) {
  Engine engine(threads, std::pmr::get_default_resource(), convolutions);
  const KernelMemory told = memory_of(engine, spec);
  EXPECT_EQ(told.own + told.scratchpad + told.reorder_buffer,
            taken_by<Layer>(spec, threads, convolutions));
}

// Padded so that the output of a stride of one is as large as the input.
ConvolutionSpec convolution(std::int64_t n, std::int64_t side, std::int64_t channels,
                            std::int64_t filters, std::int64_t kernel, std::int64_t stride) {
  return test::square(n, side, channels, filters, kernel, stride, kernel / 2);
}

TEST(KernelMemoryTest, ToldOfConvolutionsIsTaken) {
  for (const int threads : {1, 2}) {
    for (const std::int64_t n : {1, 4, 32}) {
      expect_told<Convolution>(convolution(n, 28, 1, 6, 5, 1), threads);
      expect_told<Convolution>(convolution(n, 32, 16, 16, 3, 1), threads);
      expect_told<Convolution>(convolution(n, 32, 16, 32, 3, 2), threads);
      expect_told<Convolution>(convolution(n, 32, 16, 32, 1, 2), threads);
      expect_told<Convolution>(convolution(n, 8, 64, 64, 3, 1), threads);
      expect_told<Convolution>(convolution(n, 8, 64, 64, 3, 1), threads,
                               ConvolutionAlgorithm::fast);
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
}  // namespace rondo::tensor::engine_test
