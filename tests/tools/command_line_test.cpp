// Every mistake on the command line is one line on stderr and status 2.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "program.hpp"

namespace rondo::tools::test::command_line_test {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::StartsWith;

TEST(CommandLineTest, PrintsItsVersion) {
  const Ended ended = rondo({"--version"});

  EXPECT_EQ(ended.status, 0);
  EXPECT_THAT(ended.out, StartsWith("rondo 0."));
}

TEST(CommandLineTest, HelpNamesTheSubcommands) {
  const Ended ended = rondo({"--help"});

  EXPECT_EQ(ended.status, 0);
  EXPECT_THAT(ended.out, HasSubstr("run"));
}

TEST(CommandLineTest, ListsTheSubcommandsWhenThereIsNoSuch) {
  const Ended ended = rondo({"walk"});

  EXPECT_EQ(ended.status, 2);
  EXPECT_THAT(lines(ended.err),
              ElementsAre(StartsWith("rondo: there is no subcommand 'walk'; there are: run")));
}

TEST(CommandLineTest, WantsASubcommand) {
  const Ended ended = rondo({});

  EXPECT_EQ(ended.status, 2);
  EXPECT_THAT(lines(ended.err), ElementsAre(HasSubstr("subcommand is required")));
}

TEST(CommandLineTest, NamesAnUnknownOptionAndWhereToLook) {
  const Ended ended = rondo({"run", "--bogus", "--", "true"});

  EXPECT_EQ(ended.status, 2);
  EXPECT_THAT(ended.out, IsEmpty());
  EXPECT_THAT(lines(ended.err),
              ElementsAre(testing::AllOf(HasSubstr("--bogus"), HasSubstr("see rondo run --help"))));
}

TEST(CommandLineTest, WantsSomethingToRun) {
  const Ended ended = rondo({"run", "-n", "2"});

  EXPECT_EQ(ended.status, 2);
  EXPECT_THAT(lines(ended.err), ElementsAre(HasSubstr("nothing to run")));
}

TEST(CommandLineTest, RefusesZeroRanks) {
  const Ended ended = rondo({"run", "-n", "0", "--", "true"});

  EXPECT_EQ(ended.status, 2);
  EXPECT_THAT(lines(ended.err), ElementsAre(HasSubstr("--ranks")));
}

// Nobody but the user has set what it misses.
TEST(CommandLineTest, TellsARankStartedByHandWhichVariableIsMissing) {
  const Ended ended =
      rondo({"bench", "barrier", "--fabric", "ofi"}, {{"RONDO_RANK", "0"}, {"RONDO_SIZE", "1"}});

  EXPECT_EQ(ended.status, 2);
  EXPECT_THAT(ended.err, AllOf(HasSubstr("RONDO_FABRIC is not set, but 'ofi' is asked for"),
                               HasSubstr("set it for every rank"), Not(HasSubstr("launcher"))));
}

TEST(CommandLineTest, TellsARankWhichVariableSaysOtherwise) {
  const Ended ended = rondo({"bench", "barrier", "--fabric", "ofi"},
                            {{"RONDO_RANK", "0"}, {"RONDO_SIZE", "1"}, {"RONDO_FABRIC", "ucx"}});

  EXPECT_EQ(ended.status, 2);
  EXPECT_THAT(ended.err, HasSubstr("RONDO_FABRIC is 'ucx', but 'ofi' is asked for"));
}

}  // namespace
}  // namespace rondo::tools::test::command_line_test
