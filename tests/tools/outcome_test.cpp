// Which of several failed ranks is the cause.

#include "launch/outcome.hpp"

#include <gtest/gtest.h>

#include <csignal>

namespace rondo::tools::outcome_test {
namespace {

// As waitpid() would tell it.
constexpr int exited(int status) { return status << 8; }
constexpr int killed(int signal) { return signal; }

TEST(OutcomeTest, IsZeroWhenAllRanksSucceeded) {
  Outcome outcome;

  outcome.add({0, 10, exited(0)});

  EXPECT_EQ(outcome.exit_status(), 0);
  EXPECT_FALSE(outcome.cause().has_value());
}

TEST(OutcomeTest, TakesTheFirstFailure) {
  Outcome outcome;

  outcome.add({0, 10, exited(0)});
  outcome.add({2, 12, exited(3)});
  outcome.add({1, 11, exited(2)});

  EXPECT_EQ(outcome.exit_status(), 3);
  EXPECT_EQ(outcome.cause()->rank, 2);
}

TEST(OutcomeTest, PrefersALaterSignalToAnEarlierLostPeer) {
  Outcome outcome;

  EXPECT_TRUE(outcome.add({0, 10, exited(4)}));
  EXPECT_TRUE(outcome.add({1, 11, killed(SIGSEGV)}));

  EXPECT_EQ(outcome.exit_status(), 128 + SIGSEGV);
}

TEST(OutcomeTest, TakesWhatTheLauncherEndedForAConsequence) {
  Outcome outcome;

  outcome.add({0, 10, exited(4)});
  EXPECT_FALSE(outcome.add({1, 11, killed(SIGTERM), true}));

  EXPECT_EQ(outcome.exit_status(), 4);
}

TEST(OutcomeTest, DescribesSignalsByNumberAndName) {
  EXPECT_EQ((RankEnd{1, 123, killed(SIGKILL)}.describe()),
            "rank 1 (pid 123) was ended by signal 9 (Killed)");
  EXPECT_EQ((RankEnd{0, 7, exited(3)}.describe()), "rank 0 (pid 7) ended with status 3");
}

}  // namespace
}  // namespace rondo::tools::outcome_test
