// What an Engine promises: its thread count, its memory, and denormals flushed to zero.

#include <algorithm>
#include <cstddef>
#include <stdexcept>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <rondo/tensor/batch_norm.hpp>
#include <rondo/tensor/convolution.hpp>
#include <rondo/tensor/elementwise.hpp>
#include <rondo/tensor/engine.hpp>
#include <rondo/tensor/tensor.hpp>

#include "counting_resource.hpp"
#include "data.hpp"

namespace rondo::tensor::engine_test {
namespace {

using test::CountingResource;
using test::whole_tensor;
using test::whole_values;

TEST(EngineTest, KnowsItsThreadsAndItsMemory) {
  CountingResource memory;
  const Engine engine(3, &memory);
  EXPECT_EQ(engine.threads(), 3);
  EXPECT_EQ(engine.memory(), &memory);
}

TEST(EngineTest, RefusesToRunOnNoThread) { EXPECT_THROW(Engine(0), std::invalid_argument); }

TEST(EngineTest, NamesWhatItRunsOn) {
  EXPECT_THAT(instruction_set(), testing::AnyOf("baseline", "avx2", "avx512", "avx512_bf16"));
  EXPECT_THAT(onednn_version(), testing::StartsWith("2."));
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

}  // namespace
}  // namespace rondo::tensor::engine_test
