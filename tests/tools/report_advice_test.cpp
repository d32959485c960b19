// Which scheme a report advises: accuracy as far as seeds tell, then time.

#include "report/report.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "support/reported_runs.hpp"
#include "support/scratch_folder.hpp"

namespace rondo::tools::report_advice_test {
namespace {

using test::MadeUpRun;
using testing::AllOf;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;
using testing::SizeIs;
using testing::StartsWith;

class AdviceTest : public testing::Test {
 protected:
  void add(const MadeUpRun& run) {
    const auto folder = scratch_.path() / ("run" + std::to_string(runs_.size()));
    test::write_run(folder, run);
    runs_.push_back(read_reported_run(folder));
  }
  Advice advice() {
    variants_ = variants_of(runs_);
    return advise(runs_, variants_);
  }

  std::vector<ReportedRun> runs_;
  std::vector<Variant> variants_;

 private:
  test::ScratchFolder scratch_;
};

TEST_F(AdviceTest, PutsSeedsOfAConfigurationTogether) {
  add({.seed = 1});
  add({.scheme = "lazy", .seed = 1});
  add({.seed = 2});

  const auto variants = variants_of(runs_);

  ASSERT_THAT(variants, SizeIs(2));
  EXPECT_THAT(variants[0].runs, ElementsAre(0, 2));
  EXPECT_EQ(variants[1].label, "lazy");
}

TEST_F(AdviceTest, NamesVariantsOfASchemeByTheKeysThatDiffer) {
  add({.scheme = "k_step", .more_keys = R"(period = 4\n)"});
  add({.scheme = "k_step", .more_keys = R"(period = 16\n)"});

  const auto variants = variants_of(runs_);

  EXPECT_EQ(variants[0].label, "k_step period=4");
  EXPECT_EQ(variants[1].label, "k_step period=16");
  const auto differences = differences_of(runs_, variants);
  ASSERT_THAT(differences, SizeIs(1));
  EXPECT_THAT(differences[0].values, ElementsAre("4", "16"));
}

// A host stands there once for each of its ranks.
TEST_F(AdviceTest, TellsRunsOfOtherHostsFromThoseOfOtherRanks) {
  const auto other_hosts = Contains(HasSubstr("on different machines"));
  add({});
  add({.scheme = "lazy", .hosts = R"(["a"])"});
  EXPECT_THAT(advice().notes, Not(other_hosts));
  add({.scheme = "k_step", .hosts = R"(["a","b"])"});
  EXPECT_THAT(advice().notes, other_hosts);
}

// 70 and 72: the mean is 71, the deviation 1.41, twice the standard error of a difference 2.83.
TEST_F(AdviceTest, TakesTheFasterOfThoseThatSeedsDoNotTellApart) {
  add({.seed = 1, .accuracies = {70.0}, .seconds = 4.0});
  add({.seed = 2, .accuracies = {72.0}, .seconds = 4.0});
  add({.scheme = "lazy", .seed = 1, .accuracies = {69.0}, .seconds = 3.0});
  add({.scheme = "lazy", .seed = 2, .accuracies = {69.0}, .seconds = 3.0});

  const Advice advice = this->advice();

  EXPECT_EQ(advice.take, 1);
  EXPECT_EQ(advice.accuracy, 69.0);
  EXPECT_THAT(advice.answer, StartsWith("Take lazy: 2 schemes"));
}

TEST_F(AdviceTest, TakesTheMoreAccurateHoweverFastTheOtherIs) {
  add({.seed = 1, .accuracies = {70.0}, .seconds = 4.0});
  add({.seed = 2, .accuracies = {70.2}, .seconds = 4.0});
  add({.scheme = "lazy", .seed = 1, .accuracies = {60.0}, .seconds = 1.0});
  add({.scheme = "lazy", .seed = 2, .accuracies = {72.0}, .seconds = 1.0});

  const Advice advice = this->advice();

  EXPECT_EQ(advice.take, 0);
  EXPECT_THAT(advice.answer, AllOf(StartsWith("Take synchronous: it is the most accurate"),
                                   HasSubstr("lazy ends 4.10 points below")));
}

TEST_F(AdviceTest, SaysWhatItAssumesOfASingleSeed) {
  add({.accuracies = {70.0}, .seconds = 4.0});
  add({.scheme = "lazy", .accuracies = {69.6}, .seconds = 3.0});

  const Advice advice = this->advice();

  EXPECT_EQ(advice.take, 1);
  EXPECT_THAT(advice.notes, Contains(HasSubstr("at most 0.5 points count as the same")));
}

// The spread that is asked for is that of the most accurate one.
TEST_F(AdviceTest, AssumesNothingWhereTheMostAccurateHasTwoSeeds) {
  add({.seed = 1, .accuracies = {70.0}});
  add({.seed = 2, .accuracies = {72.0}});
  add({.scheme = "lazy", .accuracies = {69.0}});

  EXPECT_THAT(advice().notes, Not(Contains(HasSubstr("count as the same"))));
}

TEST_F(AdviceTest, ClaimsNothingOfSeedsWhereThereIsOne) {
  add({.accuracies = {70.0}, .seconds = 4.0});
  add({.scheme = "lazy", .accuracies = {69.4}, .seconds = 3.0});

  EXPECT_THAT(advice().answer,
              HasSubstr("by more than the 0.5 points that are assumed where there is one seed"));
}

// Two runs of one seed are one seed, whose spread is not known: 69.7 is as good as 70.
TEST_F(AdviceTest, CountsASeedThatWasRunAgainOnce) {
  add({.seed = 1, .accuracies = {70.0}, .seconds = 4.0});
  add({.seed = 1, .accuracies = {70.0}, .seconds = 6.0});
  add({.scheme = "lazy", .seed = 1, .accuracies = {69.7}, .seconds = 3.0});
  add({.scheme = "lazy", .seed = 1, .accuracies = {10.0}, .ended = false});

  const Advice advice = this->advice();

  EXPECT_THAT(variants_[0].runs, ElementsAre(0, 1));
  EXPECT_THAT(variants_[0].completed, ElementsAre(0));
  EXPECT_EQ(variants_[0].summary.seeds, 1);
  EXPECT_FALSE(variants_[0].summary.final_accuracy->deviation.has_value());
  EXPECT_EQ(variants_[0].summary.seconds, 4.0);
  EXPECT_EQ(variants_[1].summary.seeds, 1);  // one of its runs was interrupted
  EXPECT_EQ(advice.take, 1);
  EXPECT_THAT(advice.notes,
              AllOf(Contains(HasSubstr("synchronous: 1 of 2 runs repeat a seed")),
                    Contains(HasSubstr("lazy: 1 of 2 runs did not complete")),
                    Contains(HasSubstr("synchronous is the most accurate and has one seed"))));
}

TEST_F(AdviceTest, LeavesOutRunsThatDidNotComplete) {
  add({.accuracies = {70.0}});
  add({.scheme = "lazy", .accuracies = {99.0}, .ended = false});

  const Advice advice = this->advice();

  EXPECT_FALSE(advice.take.has_value());
  EXPECT_THAT(advice.answer,
              HasSubstr("only synchronous has completed runs: it ends with 70.00 %"));
  EXPECT_THAT(advice.notes, Contains(HasSubstr("lazy: 1 of 1 runs did not complete")));
}

TEST_F(AdviceTest, TakesNothingWhereNothingCompletedOrTasksDiffer) {
  add({.ended = false});
  EXPECT_FALSE(advice().take.has_value());

  add({});
  add({.scheme = "lazy"});
  runs_.back().keys["data.name"] = "\"mnist\"";
  const Advice other = advice();

  EXPECT_FALSE(other.take.has_value());
  EXPECT_THAT(other.answer, HasSubstr("data.name differs (mnist, synthetic)"));
}

// As a program leaves them whose scheme or data are its own: the configuration does not say so.
TEST_F(AdviceTest, TellsRunsWithAPartOfTheirOwnFromOthers) {
  add({.accuracies = {70.0}});
  add({.accuracies = {60.0}, .own_scheme = "mean_of_steps"});

  EXPECT_THAT(advice().answer, StartsWith("Take synchronous: it is the most accurate"));
  EXPECT_EQ(variants_[1].label, "mean_of_steps");

  add({.own_data = "moons"});
  EXPECT_THAT(advice().answer, HasSubstr("data.name differs (moons, synthetic)"));
}

TEST_F(AdviceTest, TakesWhatARunDoesNotSayForNoOtherTask) {
  add({.accuracies = {70.0}});
  add({.scheme = "lazy", .accuracies = {60.0}});
  add({});
  runs_.back().keys.clear();
  runs_.back().record = {};

  EXPECT_THAT(advice().answer, StartsWith("Take synchronous"));
}

TEST_F(AdviceTest, SaysNothingOfBytesWhereAllSendThemAlike) {
  add({.accuracies = {70.0}, .seconds = 4.0});
  add({.scheme = "lazy", .accuracies = {70.0}, .seconds = 3.0});

  EXPECT_THAT(advice().answer, AllOf(StartsWith("Take lazy"), Not(HasSubstr("of the bytes"))));
}

TEST_F(AdviceTest, DoesNotCompareOneConfigurationWithItself) {
  add({.accuracies = {70.0}});

  const Advice advice = this->advice();

  EXPECT_FALSE(advice.take.has_value());
  EXPECT_THAT(advice.answer, HasSubstr("it ends with 70.00 %"));
}

}  // namespace
}  // namespace rondo::tools::report_advice_test
