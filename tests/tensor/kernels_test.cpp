// Our own loops: every variant that this CPU can run gives the same bits as the baseline.

#include <array>
#include <bit>
#include <cstdint>
#include <tuple>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "data.hpp"
#include "kernels/kernels.hpp"

namespace rondo::tensor::kernels_test {
namespace {

using test::normal_values;
using testing::Values;

template <typename T>
std::vector<std::uint64_t> bits(const std::vector<T>& values) {
  std::vector<std::uint64_t> result;
  for (const T value : values) {
    if constexpr (sizeof(T) == sizeof(float)) {
      result.push_back(std::bit_cast<std::uint32_t>(value));
    } else {
      result.push_back(std::bit_cast<std::uint64_t>(value));
    }
  }
  return result;
}

// Variant; floats of a row; elements: whole rows, or a last, short one.
class KernelsTest
    : public testing::TestWithParam<std::tuple<InstructionSet, std::size_t, std::size_t>> {
 protected:
  void SetUp() override {
    if (!is_supported(std::get<0>(GetParam()))) GTEST_SKIP() << "this CPU cannot run it";
  }
  [[nodiscard]] static const Kernels& variant() { return kernels_of(std::get<0>(GetParam())); }
  [[nodiscard]] static const Kernels& baseline() { return kernels_of(InstructionSet::baseline); }

  // Addresses that no vector width divides.
  [[nodiscard]] static std::vector<float> unaligned(std::size_t count, unsigned seed) {
    return normal_values(static_cast<std::int64_t>(count) + 1, seed, 0.3F, 1.7F);
  }

  std::size_t width = std::get<1>(GetParam());
  std::size_t count = std::get<2>(GetParam());
  std::vector<float> x = unaligned(count, 1);
  std::vector<float> y = unaligned(count, 2);
  std::vector<float> dy = unaligned(count, 3);
  std::vector<float> mean = unaligned(width, 4);
  std::vector<float> factor = unaligned(width, 5);
  std::vector<float> shift = unaligned(width, 6);
  std::vector<float> offset = unaligned(width, 7);
  std::vector<float> slope = unaligned(width, 8);
};

TEST_P(KernelsTest, ElementwiseLoopsAgree) {
  auto expected = dy;
  auto actual = dy;
  baseline().backward_relu(y.data() + 1, expected.data() + 1, count);
  variant().backward_relu(y.data() + 1, actual.data() + 1, count);
  baseline().add(x.data() + 1, expected.data() + 1, count);
  variant().add(x.data() + 1, actual.data() + 1, count);
  EXPECT_EQ(bits(actual), bits(expected));
}

TEST_P(KernelsTest, MomentsAgree) {
  const auto moments = [&](const Kernels& loops) {
    std::vector<double> sums(2 * width, 0.5);
    loops.sum_moments({.x = x.data() + 1,
                       .count = count,
                       .origin = mean.data() + 1,
                       .width = width,
                       .sums = sums.data(),
                       .squares = sums.data() + width});
    return bits(sums);
  };
  EXPECT_EQ(moments(variant()), moments(baseline()));
}

TEST_P(KernelsTest, NormalisingAgrees) {
  for (const bool rectified : {false, true}) {
    for (const float* residual : std::array<const float*, 2>{nullptr, dy.data() + 1}) {
      const auto normalised = [&](const Kernels& loops) {
        std::vector<float> out(count + 1, -1.0F);
        loops.normalise({.x = x.data() + 1,
                         .residual = residual,
                         .y = out.data() + 1,
                         .count = count,
                         .mean = mean.data() + 1,
                         .factor = factor.data() + 1,
                         .shift = shift.data() + 1,
                         .width = width,
                         .rectified = rectified});
        return bits(out);
      };
      EXPECT_EQ(normalised(variant()), normalised(baseline()));
    }
  }
}

TEST_P(KernelsTest, GradientsAgree) {
  const auto cases = {std::pair(Gate::open, false), std::pair(Gate::recomputed, false),
                      std::pair(Gate::output, false), std::pair(Gate::output, true)};
  for (const auto& [gate_kind, merged] : cases) {
    const Gate gate = gate_kind;
    const float* also = merged ? x.data() : nullptr;
    const auto gradients = [&](const Kernels& loops) {
      auto gated = dy;
      std::vector<float> dx(count + 1, -1.0F);
      std::vector<double> sums(2 * width, 0.0);
      loops.sum_gradients({.x = x.data() + 1,
                           .y = y.data() + 1,
                           .dy = gated.data() + 1,
                           .also = also,
                           .count = count,
                           .mean = mean.data() + 1,
                           .factor = factor.data() + 1,
                           .shift = shift.data() + 1,
                           .width = width,
                           .gate = gate,
                           .sums = sums.data(),
                           .products = sums.data() + width});
      loops.input_gradients({.x = x.data() + 1,
                             .dy = gated.data() + 1,
                             .dx = dx.data() + 1,
                             .count = count,
                             .mean = mean.data() + 1,
                             .factor = factor.data() + 1,
                             .shift = shift.data() + 1,
                             .offset = offset.data() + 1,
                             .slope = slope.data() + 1,
                             .width = width,
                             .gate = gate == Gate::output ? Gate::open : gate});
      return std::tuple(bits(gated), bits(dx), bits(sums));
    };
    EXPECT_EQ(gradients(variant()), gradients(baseline()));
  }
}

INSTANTIATE_TEST_SUITE_P(Variants, KernelsTest,
                         testing::Combine(Values(InstructionSet::avx2, InstructionSet::avx512),
                                          Values(64, 80, 96, 272), Values(0, 16, 1000, 96 * 100)));

TEST(InstructionSetTest, TheBestOneIsSupported) {
  EXPECT_TRUE(is_supported(best_instruction_set()));
  EXPECT_TRUE(is_supported(InstructionSet::baseline));
  EXPECT_EQ(&kernels(), &kernels_of(best_instruction_set()));
}

}  // namespace
}  // namespace rondo::tensor::kernels_test
