// `rondo compare` as a program: runs, a table, and going on where it was interrupted.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <filesystem>
#include <string>
#include <vector>

#include "support/program.hpp"
#include "support/scratch_folder.hpp"
#include "tools/runs.hpp"

namespace rondo::test::compare_test {
namespace {

namespace fs = std::filesystem;

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;
using testing::SizeIs;
using testing::StartsWith;

const std::string two_steps = small_run(64) + R"(
[optimizer]
learning_rate = 0.05
)";

class CompareTest : public testing::Test {
 protected:
  CompareTest() { scratch_.write("experiment.toml", two_steps); }

  /// With more behind the two steps.
  void configure(const std::string& more) { scratch_.write("experiment.toml", two_steps + more); }
  [[nodiscard]] fs::path folder() const { return scratch_.path() / "compared"; }

  [[nodiscard]] Words arguments(const Words& more) const {
    return joined({"compare", scratch_.path() / "experiment.toml", "--folder", folder(), "-n", "2",
                   "--threads", "1"},
                  more);
  }
  [[nodiscard]] Ended compare(const Words& more) const { return rondo(arguments(more)); }
  [[nodiscard]] std::string file(const fs::path& name) const { return contents(folder() / name); }

 private:
  ScratchFolder scratch_;
};

const Words one = {"--schemes", "synchronous", "--seeds", "1"};
const Words two_by_two = {"--schemes", "synchronous,synchronous:bucket_bytes=1024", "--seeds", "2"};

TEST_F(CompareTest, RunsEveryItemWithEverySeedOnce) {
  const Ended first = compare(two_by_two);
  const Ended second = compare(two_by_two);

  EXPECT_EQ(first.status, 0) << first.err;
  EXPECT_THAT(first.err, AllOf(HasSubstr("4 of 4 runs to run"), HasSubstr("4/4 ")));
  EXPECT_THAT(file("synchronous-bucket_bytes=1024/seed2/config.toml"),
              AllOf(HasSubstr("bucket_bytes = 1024"), HasSubstr("seed = 2")));
  EXPECT_THAT(lines(first.out),
              ElementsAre("2 ranks x 1 thread", StartsWith("scheme "),
                          AllOf(StartsWith("synchronous "), HasSubstr(" 2/2 ")),
                          AllOf(StartsWith("synchronous-bucket_bytes=1024 "), HasSubstr(" 2/2 "))));
  EXPECT_EQ(second.status, 0);
  EXPECT_THAT(second.err, AllOf(HasSubstr("0 of 4 runs to run"), Not(HasSubstr(" 1/4 "))));
  EXPECT_EQ(second.out, first.out);
}

TEST_F(CompareTest, WritesTheTableAsCsv) {
  const Ended ended =
      compare({"--schemes", "synchronous", "--seed-list", "4,9", "--accuracy", "0"});

  ASSERT_EQ(ended.status, 0) << ended.err;
  EXPECT_TRUE(fs::exists(folder() / "synchronous" / "seed9"));
  const auto rows = lines(file("compare.csv"));
  ASSERT_THAT(rows, SizeIs(2));
  EXPECT_THAT(rows[0], StartsWith("scheme,final_accuracy,"));
  EXPECT_THAT(rows[1],
              AllOf(StartsWith("synchronous,"), HasSubstr(",2,2,2,0,"), HasSubstr(",0,2,")));
}

TEST_F(CompareTest, SaysWhatWasInjected) {
  const Ended ended =
      compare({"--schemes", "synchronous", "--seeds", "1", "--fake-nodes", "2", "--fabric", "shm",
               "--latency-us", "3", "--set", "inject.slow_ranks={1 = 1.5}"});
  ASSERT_EQ(ended.status, 0) << ended.err;
  EXPECT_THAT(lines(ended.out).front(),
              AllOf(StartsWith("2 ranks x 1 thread, 2 nodes joined by"),
                    HasSubstr("injected: 3 us"), HasSubstr("injected: rank 1 1.5 times as slow")));
  EXPECT_THAT(file("compare.csv"), HasSubstr("injected: 3 us"));
}

TEST_F(CompareTest, RunsWhatIsIncompleteAnew) {
  ASSERT_EQ(compare(one).status, 0);
  const fs::path metrics = folder() / "synchronous" / "seed1" / "metrics.jsonl";
  fs::resize_file(metrics, fs::file_size(metrics) - 20);  // into its last line

  const Ended listed = compare(joined(one, {"--dry-run"}));
  const Ended ended = compare(one);

  EXPECT_THAT(listed.out, HasSubstr("synchronous seed 1: would run anew: incomplete"));
  EXPECT_EQ(ended.status, 0);
  EXPECT_THAT(ended.err, HasSubstr("1 of 1 run to run"));
  EXPECT_THAT(ended.out, HasSubstr(" 1/1 "));
}

// It would train again what has completed, and remove it.
TEST_F(CompareTest, DoesNotReplaceARunThatCannotBeRead) {
  ASSERT_EQ(compare(one).status, 0);
  const fs::path metrics = folder() / "synchronous" / "seed1" / "metrics.jsonl";
  fs::rename(metrics, folder() / "kept");
  fs::create_symlink("metrics.jsonl", metrics);

  const Ended refused = compare(one);

  expect_refused(refused, 3, "metrics.jsonl: cannot be read: Too many levels");
  EXPECT_TRUE(fs::exists(metrics.parent_path() / "config.toml"));
}

TEST_F(CompareTest, RefusesTheRunsOfAnotherConfigurationUnlessAnew) {
  ASSERT_EQ(compare(one).status, 0);
  const auto changed = joined(one, {"--set", "train.epochs=2"});

  const Ended listed = compare(joined(changed, {"--dry-run"}));
  const Ended listed_anew = compare(joined(changed, {"--dry-run", "--anew"}));
  const Ended refused = compare(changed);
  const Ended replaced = compare(joined(changed, {"--anew"}));

  expect_refused(refused, 2, "train.epochs is 1, would be 2");
  EXPECT_EQ(listed.status, 2);
  EXPECT_THAT(listed.out, HasSubstr("holds another run: train.epochs is 1, would be 2"));
  EXPECT_EQ(listed.err, refused.err);
  EXPECT_EQ(listed_anew.status, 0);
  EXPECT_THAT(listed_anew.out, HasSubstr("would replace another run: "));
  EXPECT_EQ(replaced.status, 0) << replaced.err;
  EXPECT_THAT(replaced.err, HasSubstr("1 of 1 run to run"));
}

TEST_F(CompareTest, PrintsTheTableOfWhatHasRunAndLeavesOutOtherRuns) {
  ASSERT_EQ(compare(one).status, 0);
  const Ended table = compare(joined(two_by_two, {"--table-only"}));
  const Ended other = compare(joined(two_by_two, {"--table-only", "--set", "train.epochs=2"}));
  EXPECT_EQ(table.status, 0);
  EXPECT_THAT(table.out, AllOf(HasSubstr(" 1/2 "), HasSubstr(" 0/2 ")));
  EXPECT_THAT(other.out, Not(HasSubstr(" 1/2 ")));
  EXPECT_THAT(other.err, HasSubstr("seed1 is left out: train.epochs is 1, would be 2"));
  EXPECT_FALSE(fs::exists(folder() / "synchronous-bucket_bytes=1024"));
}

// Words that are refused before anything runs, and the line about them. Each run has the scheme of
// its item and a seed of the list: settings of them had no effect.
TEST_F(CompareTest, RefusesMistakesBeforeAnythingRuns) {
  const std::vector<Mistake> mistakes = {
      {{"synchronous,synchronous:bucket_byte=1"},
       "scheme 'synchronous:bucket_byte=1': update.bucket_byte=1: unknown key "
       "'update.bucket_byte'; did you mean "
       "'bucket_bytes'?"},
      {{"k_step:period_policy=qsr:qsr_alpha=0.1,synchronous:period_policy=qsr"},
       "scheme 'synchronous:period_policy=qsr': update.period_policy=qsr: update.period_policy: "
       "\"qsr\" has no effect with "
       "update.scheme = \"synchronous\""},
      // An item is not blamed for the configuration.
      {{"synchronous", "--set", "train.epoch=1"}, "rondo: --set train.epoch=1: unknown key"},
      {{"lazy", "--set", "train.seed=5"}, "by --seeds or --seed-list"},
      {{"lazy", "--set", "update.scheme=k_step"}, "choose schemes by --schemes"}};
  for (const Mistake& mistake : mistakes) {
    expect_refused(compare(joined({"--schemes"}, mistake.arguments)), 2, mistake.said);
    EXPECT_FALSE(fs::exists(folder()));
  }
}

TEST_F(CompareTest, LeavesOutWhatTheFileSaysOfItsOwnScheme) {
  configure("[update]\nscheme = 'k_step'\nfragments = 2\n");
  const Ended ended = compare({"--schemes", "synchronous,k_step", "--seeds", "1", "--dry-run"});
  EXPECT_EQ(ended.status, 0) << ended.err;
  EXPECT_THAT(lines(ended.out), testing::SizeIs(2));
}

// Else the plug-in would be trained under the name of each.
TEST_F(CompareTest, LeavesOutTheLibraryOfTheFilesOwnScheme) {
  configure("[update]\nplugin = 'librondo-none.so'\nplugin_settings = { pull = '0.5' }\n");
  const Ended ended = compare({"--schemes", "synchronous,k_step:period=2", "--seeds", "1"});
  EXPECT_EQ(ended.status, 0) << ended.err;
  for (const char* run : {"synchronous", "k_step-period=2"}) {
    EXPECT_THAT(file(fs::path(run) / "seed1" / "config.toml"),
                AllOf(HasSubstr("plugin = \"\""), HasSubstr("plugin_settings = {}")));
  }

  const Ended own = compare({"--schemes", "synchronous:plugin=librondo-none.so", "--seeds", "1"});
  EXPECT_THAT(own.err, HasSubstr("librondo-none.so cannot be loaded"));
}

TEST_F(CompareTest, GoesOnAfterARunThatFailedAndEndsWithItsStatus) {
  const Ended ended = compare(
      {"--schemes", "synchronous:optimizer.learning_rate=1e30,synchronous", "--seeds", "1"});
  EXPECT_EQ(ended.status, 5);
  EXPECT_THAT(ended.err,
              AllOf(HasSubstr("synchronous-optimizer.learning_rate=1e30 seed 1: failed with "
                              "status 5"),
                    HasSubstr("2/2 synchronous seed 1: accuracy")));
  EXPECT_THAT(ended.out, AllOf(HasSubstr(" 0/1 "), HasSubstr(" 1/1 ")));
}

TEST_F(CompareTest, EndsTheRanksWhenInterruptedAndShowsWhatHasRun) {
  const std::vector<std::string> endless = {
      "--schemes", "synchronous,synchronous:train.epochs=100000", "--seeds", "1"};
  Program program(rondo_command(arguments(endless)));
  program.errors_until("1/2 ");
  while (program.children().size() < 2) {
  }

  program.send(SIGTERM);

  const Ended ended = program.wait();
  EXPECT_EQ(ended.status, 128 + SIGTERM);
  EXPECT_THAT(ended.err, HasSubstr("interrupted"));
  EXPECT_THAT(ended.out, AllOf(HasSubstr(" 1/1 "), HasSubstr(" 0/1 ")));
  EXPECT_THAT(compare(joined(endless, {"--dry-run"})).out,
              AllOf(HasSubstr("synchronous seed 1: has run"), HasSubstr("would run")));
}

TEST_F(CompareTest, LetsNobodyElseCompareInItsFolder) {
  const Words endless = {"--schemes", "synchronous:train.epochs=100000"};
  Program program(rondo_command(arguments(endless)));
  program.errors_until("to run, in");
  expect_refused(compare(endless), 2, "another rondo compare runs in");
}

TEST_F(CompareTest, TakesAFileThatStandsBehindAListOrASetting) {
  const fs::path config = folder().parent_path() / "experiment.toml";
  const Words rest = {config, "--folder", folder(), "--dry-run"};
  const Words list = {"compare", "--schemes", "lazy"};
  for (const Words& words : {list, joined(list, {"--set", "train.epochs=2"})}) {
    const Ended ended = rondo(joined(words, rest));

    EXPECT_EQ(ended.status, 0) << ended.err;
    EXPECT_THAT(lines(ended.out), SizeIs(3));
  }
}

}  // namespace
}  // namespace rondo::test::compare_test
