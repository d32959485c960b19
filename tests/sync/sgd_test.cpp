// SGD with momentum and weight decay: its formula, and that its bits depend on nothing else.

#include <bit>
#include <cstddef>
#include <cstdint>
#include <random>
#include <span>
#include <stdexcept>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <rondo/sync/optimizer.hpp>
#include <rondo/transport/team.hpp>

#include "optimizer/sgd_kernel.hpp"

namespace rondo::sync {
namespace {

using testing::ContainerEq;
using testing::ElementsAre;

std::vector<float> random_values(std::size_t size, std::uint32_t seed) {
  std::mt19937 generator(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(size);
  for (float& value : values) value = normal(generator);
  return values;
}

/// Threads that really run at the same time.
class ThreeThreads final : public transport::Team {
 public:
  [[nodiscard]] int size() const noexcept override { return 3; }
  void run(void (*part)(void* context, int index), void* context) override {
    std::thread second(part, context, 1);
    std::thread third(part, context, 2);
    part(context, 0);
    second.join();
    third.join();
  }
};

TEST(SgdTest, FollowsItsFormula) {
  // v = 0.5 v + (g / 4 + 0.25 w);  w = w - 2 v; all values are exact in fp32.
  const auto sgd = make_sgd(1, {.momentum = 0.5F, .weight_decay = 0.25F});
  std::vector<float> w{8.0F};

  sgd->update(0, w, std::vector<float>{4.0F}, {0.25F, 2.0});
  EXPECT_THAT(w, ElementsAre(2.0F));  // v = 1 + 2 = 3

  sgd->update(0, w, std::vector<float>{0.0F}, {0.25F, 2.0});
  EXPECT_THAT(w, ElementsAre(-2.0F));  // v = 1.5 + 0.5 = 2
}

TEST(SgdTest, AllInstructionSetsAgreeBitForBit) {
  const SgdFactors factors{1.0F / 128, 0.9F, 5e-4F, 0.1F};
  for (const std::size_t size : {0U, 1U, 7U, 8U, 15U, 16U, 17U, 63U, 64U, 100U, 1001U}) {
    std::vector<float> expected_w = random_values(size, 1);
    std::vector<float> expected_v = random_values(size, 2);
    const std::vector<float> g = random_values(size, 3);
    update_sgd_baseline(expected_w.data(), expected_v.data(), g.data(), size, factors);
    for (const SgdVariant& variant : sgd_variants()) {
      std::vector<float> w = random_values(size, 1);
      std::vector<float> v = random_values(size, 2);

      variant.kernel(w.data(), v.data(), g.data(), size, factors);

      EXPECT_THAT(w, ContainerEq(expected_w)) << variant.instruction_set << ", " << size;
      EXPECT_THAT(v, ContainerEq(expected_v)) << variant.instruction_set << ", " << size;
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

  sgd_variants().back().kernel(w.data(), v.data(), g.data(), w.size(), {0.3F, 0.9F, 0.01F, 0.1F});

  EXPECT_THAT(w, ContainerEq(expected));
}

/// The parameters after three updates, where range i is [cuts[i], cuts[i+1]).
std::vector<float> trained(const std::vector<std::size_t>& cuts, transport::Team* team = nullptr) {
  const std::size_t size = cuts.back();
  const auto sgd = make_sgd(size, {}, team);
  std::vector<float> w = random_values(size, 4);
  for (std::uint32_t step = 0; step < 3; ++step) {
    const std::vector<float> g = random_values(size, 5 + step);
    for (std::size_t i = 0; i + 1 < cuts.size(); ++i) {
      const std::size_t count = cuts[i + 1] - cuts[i];
      sgd->update(cuts[i], std::span(w).subspan(cuts[i], count),
                  std::span(g).subspan(cuts[i], count), {0.5F, 0.1});
    }
  }
  return w;
}

TEST(SgdTest, DoesNotDependOnHowTheArrayIsCut) {
  EXPECT_THAT(trained({0, 1, 18, 18, 100}), ContainerEq(trained({0, 100})));
}

TEST(SgdTest, DoesNotDependOnTheThreads) {
  ThreeThreads team;

  EXPECT_EQ(trained({0, 200'001}, &team), trained({0, 200'001}));
}

TEST(SgdTest, RefusesARangeThatDoesNotFit) {
  const auto sgd = make_sgd(4, {});
  std::vector<float> w(3);
  const std::vector<float> g(3);

  EXPECT_THROW(sgd->update(2, w, g, {}), std::invalid_argument);
  EXPECT_THROW(sgd->update(9, w, g, {}), std::invalid_argument);
  EXPECT_THROW(sgd->update(0, w, std::vector<float>(2), {}), std::invalid_argument);
}

TEST(SgdTest, ContinuesExactlyFromItsState) {
  const auto first = make_sgd(50, {});
  const auto second = make_sgd(50, {});
  std::vector<float> w = random_values(50, 1);
  first->update(0, w, random_values(50, 2), {1.0F, 0.1});
  std::vector<float> copy = w;

  second->restore(first->save());
  first->update(0, w, random_values(50, 3), {1.0F, 0.1});
  second->update(0, copy, random_values(50, 3), {1.0F, 0.1});

  EXPECT_THAT(copy, ContainerEq(w));
}

TEST(SgdTest, RefusesTheStateOfAnotherSize) {
  const auto sgd = make_sgd(50, {});

  EXPECT_THROW(sgd->restore(make_sgd(49, {})->save()), std::invalid_argument);
}

}  // namespace
}  // namespace rondo::sync
