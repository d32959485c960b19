// A warm-up and what follows it: who is called when, and what is saved.

#include <rondo/sync/update_scheme.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <rondo/sync/optimizer.hpp>
#include <rondo/sync/sharded.hpp>
#include <rondo/sync/synchronous.hpp>

#include "support/allocations.hpp"
#include "support/error_text.hpp"
#include "support/world.hpp"
#include "sync/arrays.hpp"

namespace rondo::sync::warm_up_test {
namespace {

using test::Arrays;
using testing::ElementsAre;
using testing::ElementsAreArray;

/// A scheme that does nothing but write its calls to a list: "NAME.call argument".
///
/// Its state is the number of iterations it has finished. It claims a global reduction for each
/// of them, a pace of as many samples, and fills evaluation copies with that number.
class RecordingScheme final : public UpdateScheme {
 public:
  /// `calls` is lent.
  RecordingScheme(std::string name, std::vector<std::string>& calls)
      : name_(std::move(name)), calls_(calls) {}

  void begin(const Step& step) override { record("begin " + std::to_string(step.index)); }
  void make_ready(std::size_t layer) override { record("make_ready " + std::to_string(layer)); }
  void gradients_final(std::size_t layer) override { record("final " + std::to_string(layer)); }
  void finish() override {
    ++finished_;
    record("finish");
  }
  void copy_for_evaluation(std::span<float> parameters, std::span<float> /*statistics*/) override {
    for (float& value : parameters) value = static_cast<float>(finished_);
    record("copy");
  }
  void flush() override { record("flush"); }
  [[nodiscard]] std::vector<std::span<const float>> replicated() const override {
    return {parameters_};
  }
  [[nodiscard]] std::vector<std::byte> save() const override {
    return {static_cast<std::byte>(finished_)};
  }
  void restore(std::span<const std::byte> state) override {
    finished_ = static_cast<std::uint8_t>(state.front());
    record("restore " + std::to_string(finished_));
  }
  [[nodiscard]] SchemeCounters counters() const noexcept override {
    return {.global_reductions = finished_, .collectives = 2U * std::uint64_t{finished_}};
  }
  [[nodiscard]] const SchemeDescription& description() const noexcept override {
    static constexpr SchemeDescription recording{.name = "recording"};
    return recording;
  }
  [[nodiscard]] std::optional<Pace> pace() const noexcept override {
    return Pace{.samples = finished_};
  }

 private:
  void record(const std::string& call) { calls_.push_back(name_ + "." + call); }

  std::string name_;
  std::vector<std::string>& calls_;
  std::vector<float> parameters_ = {1.0F};
  std::uint8_t finished_ = 0;
};

/// A warm-up of two recording schemes, "a" and then "b".
struct Recorded {
  explicit Recorded(std::int64_t steps)
      : scheme(make_warm_up(std::make_unique<RecordingScheme>("a", calls),
                            std::make_unique<RecordingScheme>("b", calls), steps)) {}

  void iterate(int index) const {
    scheme->begin({.index = index, .local_samples = 1, .global_samples = 1});
    scheme->finish();
  }

  std::vector<std::string> calls;
  std::unique_ptr<UpdateScheme> scheme;
};

TEST(WarmUpTest, HandsOverAfterItsStepsAndFlushesTheFirst) {
  const Recorded warm_up(2);

  for (int i = 5; i < 9; ++i) warm_up.iterate(i);
  warm_up.scheme->flush();

  EXPECT_THAT(warm_up.calls,
              ElementsAre("a.begin 5", "a.finish", "a.begin 6", "a.finish", "a.flush", "b.begin 7",
                          "b.finish", "b.begin 8", "b.finish", "b.flush"));
}

TEST(WarmUpTest, PassesOnEveryLayer) {
  const Recorded warm_up(1);
  for (int i = 0; i < 2; ++i) {
    warm_up.scheme->begin({.index = i, .local_samples = 1, .global_samples = 1});
    warm_up.scheme->make_ready(3);
    warm_up.scheme->gradients_final(4);
    warm_up.scheme->finish();
  }

  EXPECT_THAT(warm_up.calls,
              ElementsAre("a.begin 0", "a.make_ready 3", "a.final 4", "a.finish", "a.flush",
                          "b.begin 1", "b.make_ready 3", "b.final 4", "b.finish"));
}

TEST(WarmUpTest, OfNoStepsIsTheOtherSchemeAlone) {
  const Recorded warm_up(0);

  warm_up.iterate(0);

  EXPECT_THAT(warm_up.calls, ElementsAre("b.begin 0", "b.finish"));
}

TEST(WarmUpTest, WhatRanLastIsEvaluated) {
  const Recorded warm_up(2);
  std::vector<float> parameters(1);

  for (int i = 0; i < 2; ++i) warm_up.iterate(i);
  warm_up.scheme->copy_for_evaluation(parameters, {});
  EXPECT_THAT(parameters, ElementsAre(2.0F));  // the end of the warm-up: "a" has finished two
  EXPECT_EQ(warm_up.scheme->pace()->samples, 2);
  EXPECT_THAT(warm_up.calls.back(), "a.copy");

  warm_up.iterate(2);
  warm_up.scheme->copy_for_evaluation(parameters, {});
  EXPECT_THAT(parameters, ElementsAre(1.0F));
  EXPECT_EQ(warm_up.scheme->pace()->samples, 1);
  EXPECT_EQ(warm_up.scheme->replicated().size(), 1U);
  EXPECT_THAT(warm_up.calls.back(), "b.copy");
}

TEST(WarmUpTest, CountsBoth) {
  const Recorded warm_up(2);

  for (int i = 0; i < 5; ++i) {
    warm_up.iterate(i);
    EXPECT_EQ(warm_up.scheme->counters().global_reductions, static_cast<std::uint64_t>(i) + 1);
  }

  EXPECT_EQ(warm_up.scheme->counters().collectives, 10U);
}

TEST(WarmUpTest, ItsStateHoldsThePhaseAndTheCount) {
  for (int before = 0; before < 5; ++before) {
    const Recorded saved(2);
    const Recorded restored(2);
    for (int i = 0; i < before; ++i) saved.iterate(i);

    restored.scheme->restore(saved.scheme->save());

    EXPECT_EQ(restored.scheme->save(), saved.scheme->save()) << before;
    EXPECT_EQ(restored.scheme->counters().global_reductions,
              saved.scheme->counters().global_reductions);
    EXPECT_THAT(restored.calls,
                ElementsAre(before <= 2 ? "a.restore " + std::to_string(before)
                                        : "b.restore " + std::to_string(before - 2)));
    restored.iterate(before);
    EXPECT_EQ(restored.calls.back(), before < 2 ? "a.finish" : "b.finish") << before;
  }
}

TEST(WarmUpTest, DoesNotGoBackToTheWarmUp) {
  const Recorded warm_up(2);
  const std::vector<std::byte> cold = warm_up.scheme->save();
  for (int i = 0; i < 3; ++i) warm_up.iterate(i);

  EXPECT_THROW(warm_up.scheme->restore(cold), std::logic_error);
}

TEST(WarmUpTest, RefusesWhatCannotRun) {
  std::vector<std::string> calls;
  const auto scheme = [&] { return std::make_unique<RecordingScheme>("a", calls); };

  EXPECT_THROW((void)make_warm_up(nullptr, scheme(), 1), std::invalid_argument);
  EXPECT_THROW((void)make_warm_up(scheme(), nullptr, 1), std::invalid_argument);
  EXPECT_THROW((void)Recorded(-1), std::invalid_argument);
}

// Each rank would go on with another optimizer's state.
TEST(WarmUpTest, RefusesADividedOptimizerToBeginWith) {
  rondo::test::World{1}.run([](transport::World& world) {
    Arrays arrays(world, {8});
    const std::shared_ptr<Optimizer> sgd = make_sgd(8, {});
    EXPECT_THAT(rondo::test::error_text<std::invalid_argument>([&] {
                  (void)make_warm_up(make_sharded(arrays.replica(), sgd),
                                     make_synchronous(arrays.replica(), sgd), 1);
                }),
                testing::HasSubstr("begin with synchronous"));
  });
}

/// One iteration whose gradients depend on the parameters and the step.
void iterate(UpdateScheme& scheme, Arrays& arrays, int index) {
  test::iterate(scheme, arrays,
                {.index = index, .local_samples = 1, .global_samples = 2, .learning_rate = 0.1},
                [&](std::size_t, float w) { return w * 0.3F + static_cast<float>(index) * 0.7F; });
}

TEST(WarmUpTest, AnIterationAllocatesNothing) {
  rondo::test::World{2}.run([](transport::World& world) {
    Arrays arrays(world, {50, 6000});
    const std::shared_ptr<Optimizer> adam = make_adam(arrays.parameters.size());
    const auto scheme = make_warm_up(make_synchronous(arrays.replica(), adam),
                                     make_synchronous(arrays.replica(), adam), 10);
    for (int i = 0; i < 3; ++i) iterate(*scheme, arrays, i);  // pools fill

    const std::size_t before = rondo::test::allocations_of_this_thread();
    for (int i = 3; i < 20; ++i) iterate(*scheme, arrays, i);

    EXPECT_EQ(rondo::test::allocations_of_this_thread() - before, 0U);
  });
}

}  // namespace
}  // namespace rondo::sync::warm_up_test
