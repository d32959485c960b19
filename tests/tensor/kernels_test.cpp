// Our own loops, for both types: every variant that this CPU can run gives the same bits as the
// baseline.

#include <array>
#include <bit>
#include <cstdint>
#include <limits>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "data.hpp"
#include "kernels/kernels.hpp"

namespace rondo::tensor::kernels_test {
namespace {

using test::normal_values;

template <typename T>
std::vector<std::uint64_t> bits(const std::vector<T>& values) {
  std::vector<std::uint64_t> result;
  for (const T value : values) {
    if constexpr (std::is_same_v<T, Bfloat16>) {
      result.push_back(value.bits);
    } else if constexpr (sizeof(T) == sizeof(float)) {
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

  // The same numbers as T.
  template <typename T>
  [[nodiscard]] static std::vector<T> as(const std::vector<float>& values) {
    std::vector<T> result;
    for (const float value : values) {
      if constexpr (std::is_same_v<T, Bfloat16>) {
        result.push_back(to_bfloat16(value));
      } else {
        result.push_back(value);
      }
    }
    return result;
  }

  template <typename T>
  void elementwise_loops_agree() const;
  template <typename T>
  void moments_agree() const;
  template <typename T>
  void normalising_agrees() const;
  template <typename T>
  void gradients_agree() const;

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

template <typename T>
void KernelsTest::elementwise_loops_agree() const {
  const std::vector<T> from = as<T>(x);
  const std::vector<T> activated = as<T>(y);
  const auto results = [&](const Loops<T>& loops) {
    std::vector<T> into = as<T>(dy);
    std::vector<T> activated_below = activated;
    loops.relu(activated.data() + 1, activated_below.data() + 1, count, 0.25F);
    loops.backward_relu(activated_below.data() + 1, into.data() + 1, count, 0.25F);
    loops.backward_relu(activated.data() + 1, into.data() + 1, count,
                        std::numeric_limits<float>::infinity());
    loops.add(from.data() + 1, into.data() + 1, count);
    return bits(into);
  };
  EXPECT_EQ(results(variant().of<T>()), results(baseline().of<T>()));
}

TEST_P(KernelsTest, ElementwiseLoopsAgree) {
  elementwise_loops_agree<float>();
  elementwise_loops_agree<Bfloat16>();
}

TEST_P(KernelsTest, ConversionsAgree) {
  auto numbers = x;
  if (count > 20) {
    numbers[17] = std::numeric_limits<float>::quiet_NaN();
    numbers[18] = -std::numeric_limits<float>::denorm_min();
    numbers[19] = std::numeric_limits<float>::max();
  }
  std::vector<Bfloat16> narrow(count + 1);
  variant().narrow(numbers.data() + 1, narrow.data() + 1, count);
  std::vector<Bfloat16> expected = as<Bfloat16>(numbers);
  expected[0] = {};
  EXPECT_EQ(bits(narrow), bits(expected));

  std::vector<float> wide(count + 1);
  variant().widen(narrow.data() + 1, wide.data() + 1, count);
  for (std::size_t i = 1; i <= count; ++i) {
    ASSERT_EQ(std::bit_cast<std::uint32_t>(wide[i]), narrow[i].bits << 16U);
  }
}

template <typename T>
void KernelsTest::moments_agree() const {
  const std::vector<T> from = as<T>(x);
  const auto moments = [&](const Loops<T>& loops) {
    std::vector<double> sums(2 * width, 0.5);
    loops.sum_moments({.x = from.data() + 1,
                       .count = count,
                       .origin = mean.data() + 1,
                       .width = width,
                       .sums = sums.data(),
                       .squares = sums.data() + width});
    return bits(sums);
  };
  EXPECT_EQ(moments(variant().of<T>()), moments(baseline().of<T>()));
}

TEST_P(KernelsTest, MomentsAgree) {
  moments_agree<float>();
  moments_agree<Bfloat16>();
}

template <typename T>
void KernelsTest::normalising_agrees() const {
  const std::vector<T> from = as<T>(x);
  const std::vector<T> added = as<T>(dy);
  for (const bool rectified : {false, true}) {
    for (const T* residual : std::array<const T*, 2>{nullptr, added.data() + 1}) {
      const auto normalised = [&](const Loops<T>& loops) {
        std::vector<T> out(count + 1);
        loops.normalise({.x = from.data() + 1,
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
      EXPECT_EQ(normalised(variant().of<T>()), normalised(baseline().of<T>()));
    }
  }
}

TEST_P(KernelsTest, NormalisingAgrees) {
  normalising_agrees<float>();
  normalising_agrees<Bfloat16>();
}

template <typename T>
void KernelsTest::gradients_agree() const {
  const std::vector<T> from = as<T>(x);
  const std::vector<T> activated = as<T>(y);
  const auto cases = {std::pair(Gate::open, false), std::pair(Gate::recomputed, false),
                      std::pair(Gate::output, false), std::pair(Gate::output, true)};
  for (const auto& [gate_kind, merged] : cases) {
    const Gate gate = gate_kind;
    const T* also = merged ? from.data() : nullptr;
    const auto gradients = [&](const Loops<T>& loops) {
      std::vector<T> gated = as<T>(dy);
      std::vector<T> dx(count + 1);
      std::vector<double> sums(2 * width, 0.0);
      loops.sum_gradients({.x = from.data() + 1,
                           .y = activated.data() + 1,
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
      loops.input_gradients({.x = from.data() + 1,
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
    EXPECT_EQ(gradients(variant().of<T>()), gradients(baseline().of<T>()));
  }
}

TEST_P(KernelsTest, GradientsAgree) {
  gradients_agree<float>();
  gradients_agree<Bfloat16>();
}

INSTANTIATE_TEST_SUITE_P(Variants, KernelsTest,
                         testing::Combine(testing::Values(InstructionSet::avx2,
                                                          InstructionSet::avx512,
                                                          InstructionSet::avx512_bf16),
                                          testing::Values(64, 80, 96, 272),
                                          testing::Values(0, 16, 1000, 96 * 100)));

TEST(InstructionSetTest, TheBestOneIsSupported) {
  EXPECT_TRUE(is_supported(best_instruction_set()));
  EXPECT_TRUE(is_supported(InstructionSet::baseline));
  EXPECT_EQ(&kernels(), &kernels_of(best_instruction_set()));
}

}  // namespace
}  // namespace rondo::tensor::kernels_test
