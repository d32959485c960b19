// What is booked for an optimizer is what it keeps.

#include <cstddef>
#include <memory>

#include <gtest/gtest.h>

#include <rondo/sync/optimizer.hpp>
#include <rondo/train/plan.hpp>

namespace rondo::train::optimizer_words_test {
namespace {

constexpr std::size_t parameters = 10;

int words_kept(const std::unique_ptr<sync::Optimizer>& optimizer) {
  return static_cast<int>(optimizer->state().size() / parameters);
}

TEST(OptimizerWordsTest, AreThoseThatTheOptimizerKeeps) {
  EXPECT_EQ(optimizer_words({.name = "sgd"}), words_kept(sync::make_sgd(parameters, {})));
  EXPECT_EQ(optimizer_words({.name = "sgd", .momentum = 0.0}),
            words_kept(sync::make_sgd(parameters, {.momentum = 0.0F})));
  EXPECT_EQ(optimizer_words({.name = "adam"}), words_kept(sync::make_adam(parameters)));
  EXPECT_EQ(optimizer_words({.name = "adamw"}), words_kept(sync::make_adamw(parameters)));
}

}  // namespace
}  // namespace rondo::train::optimizer_words_test
