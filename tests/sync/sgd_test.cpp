// SGD with momentum and weight decay: its formula, by every kernel.

#include <cstddef>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <rondo/sync/optimizer.hpp>

#include "optimizer/kernels.hpp"
#include "sync/optimizers.hpp"

namespace rondo::sync::sgd_test {
namespace {

using test::random_values;
using testing::ContainerEq;
using testing::ElementsAre;

TEST(SgdTest, FollowsItsFormula) {
  // v = 0.5 v + (g / 4 + 0.25 w);  w = w - 2 v; all values are exact in fp32.
  const auto sgd = make_sgd(1, {.momentum = 0.5F, .weight_decay = 0.25F});
  std::vector<float> w{8.0F};

  sgd->update(0, w, std::vector<float>{4.0F}, {0.25F, 2.0});
  EXPECT_THAT(w, ElementsAre(2.0F));  // v = 1 + 2 = 3

  sgd->update(0, w, std::vector<float>{0.0F}, {0.25F, 2.0});
  EXPECT_THAT(w, ElementsAre(-2.0F));  // v = 1.5 + 0.5 = 2
}

TEST(SgdTest, ScalesTheDecayAsAsked) {
  const auto sgd = make_sgd(1, {.momentum = 0.5F, .weight_decay = 0.25F});
  const auto half = make_sgd(1, {.momentum = 0.5F, .weight_decay = 0.125F});
  std::vector<float> w{8.0F};
  std::vector<float> expected = w;

  sgd->update(0, w, std::vector<float>{4.0F}, {0.25F, 2.0, 0, 0.5F});
  half->update(0, expected, std::vector<float>{4.0F}, {0.25F, 2.0});

  EXPECT_EQ(w, expected);
}

TEST(SgdTest, AllInstructionSetsAgreeBitForBit) {
  const SgdFactors factors{1.0F / 128, 0.9F, 5e-4F, 0.1F};
  for (const std::size_t size : {0U, 1U, 7U, 8U, 15U, 16U, 17U, 63U, 64U, 100U, 1001U}) {
    std::vector<float> expected_w = random_values(size, 1);
    std::vector<float> expected_v = random_values(size, 2);
    const std::vector<float> g = random_values(size, 3);
    baseline::update_kernels.sgd({expected_w.data(), expected_v.data(), g.data()}, size, factors);
    for (const UpdateKernels* kernels : runnable_kernels()) {
      std::vector<float> w = random_values(size, 1);
      std::vector<float> v = random_values(size, 2);

      kernels->sgd({w.data(), v.data(), g.data()}, size, factors);

      EXPECT_THAT(w, ContainerEq(expected_w)) << kernels->instruction_set << ", " << size;
      EXPECT_THAT(v, ContainerEq(expected_v)) << kernels->instruction_set << ", " << size;
    }
  }
}

TEST(SgdTest, TheKernelRoundsAfterEveryOperation) {
  std::vector<float> w = random_values(1000, 1);
  std::vector<float> v = random_values(1000, 2);
  const std::vector<float> g = random_values(1000, 3);
  std::vector<float> expected(w.size());
  for (std::size_t i = 0; i < w.size(); ++i) {
    volatile const float scaled = 0.3F * g[i];  // volatile: each product is rounded to fp32
    volatile const float decayed = 0.01F * w[i];
    volatile const float carried = 0.9F * v[i];
    volatile const float gradient = scaled + decayed;
    volatile const float velocity = carried + gradient;
    volatile const float change = 0.1F * velocity;
    expected[i] = w[i] - change;
  }

  runnable_kernels().back()->sgd({w.data(), v.data(), g.data()}, w.size(),
                                 {0.3F, 0.9F, 0.01F, 0.1F});

  EXPECT_THAT(w, ContainerEq(expected));
}

}  // namespace
}  // namespace rondo::sync::sgd_test
