// `rondo report` as a program: which page it makes of which files, and what it refuses.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "support/program.hpp"
#include "support/reported_runs.hpp"
#include "support/scratch_folder.hpp"
#include "tools/runs.hpp"

namespace rondo::test::report_test {
namespace {

namespace fs = std::filesystem;

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;
using testing::SizeIs;
using testing::StartsWith;

using Json = nlohmann::json;

class ReportTest : public testing::Test {
 protected:
  [[nodiscard]] fs::path at(const std::string& name) const { return scratch_.path() / name; }
  [[nodiscard]] fs::path page() const { return at("page.html"); }
  // Reports on folders and files of the scratch folder.
  [[nodiscard]] Ended report(const std::vector<std::string>& names) const {
    std::vector<std::string> words = {"report", "--out", page().string()};
    for (const std::string& name : names) words.push_back(at(name).string());
    return rondo(words);
  }
  // The data that the page shows.
  [[nodiscard]] Json data() const {
    const std::string opening = R"(<script id="data" type="application/json">)";
    const std::string text = contents(page());
    const std::size_t begin = text.find(opening) + opening.size();
    return Json::parse(text.substr(begin, text.find("</script>", begin) - begin), nullptr, false);
  }
  [[nodiscard]] Json curve(const std::string& title) const {
    const Json shown = data();
    for (const Json& curve : shown["curves"]) {
      if (curve["title"] == title) return curve["series"];
    }
    return {};
  }

  ScratchFolder scratch_;
};

TEST_F(ReportTest, WritesAPageIntoTheDirectoryOfTheRunAndSaysWhere) {
  write_run(at("run"), {});

  const Ended ended = rondo({"report", at("run").string()});

  EXPECT_EQ(ended.status, 0) << ended.err;
  EXPECT_EQ(ended.err, "");
  EXPECT_EQ(lines(ended.out).back(), (at("run") / "report.html").string());
  EXPECT_THAT(contents(at("run") / "report.html"), StartsWith("<!doctype html>"));
}

TEST_F(ReportTest, NeedsNoOtherFileAndNoNetwork) {
  write_run(at("run"), {});
  ASSERT_EQ(report({"run"}).status, 0);

  const std::string text = contents(page());

  EXPECT_THAT(text, AllOf(HasSubstr("default-src 'none'"), Not(HasSubstr(" src=")),
                          Not(HasSubstr("href=")), Not(HasSubstr("https://"))));
}

TEST_F(ReportTest, GivesEveryPointItsStepItsEpochAndWhatTheRunHadSpent) {
  write_run(at("run"), {.accuracies = {50.0, 70.0}, .seconds = 2.0, .bytes_sent = 4096});
  ASSERT_EQ(report({"run"}).status, 0);

  const Json accuracy = curve("Test accuracy")[0];
  const Json loss = curve("Training loss")[0];

  EXPECT_EQ(accuracy["y"], Json({50.0, 70.0}));
  EXPECT_EQ(accuracy["step"], Json({10.0, 20.0}));
  EXPECT_EQ(accuracy["seconds"], Json({2.0, 4.0}));
  EXPECT_EQ(loss["epoch"], Json({0.5, 1.5}));
  EXPECT_EQ(loss["seconds"], Json({1.0, 3.0}));
  EXPECT_EQ(accuracy["reductions"], Json({10.0, 20.0}));
  EXPECT_EQ(loss["reductions"], Json({5.0, 15.0}));
  EXPECT_EQ(accuracy["bytes"], Json({4096.0, 8192.0}));
  EXPECT_EQ(curve("Wait share")[0]["y"], Json({12.5, 12.5}));
}

TEST_F(ReportTest, AnswersWhichSchemeToTake) {
  write_run(at("a"), {.accuracies = {50.0, 70.0}, .seconds = 2.0, .bytes_sent = 1000.0});
  write_run(at("b"),
            {.scheme = "k_step", .accuracies = {60.0, 70.1}, .seconds = 1.0, .bytes_sent = 250.0});

  const Ended ended = report({"a", "b"});

  EXPECT_EQ(ended.status, 0) << ended.err;
  EXPECT_THAT(ended.out, AllOf(StartsWith("Take k_step: 2 schemes are equally accurate"),
                               HasSubstr("reach 70.00 %"), HasSubstr("after 2.0 s"),
                               HasSubstr("synchronous after 4.0 s"),
                               HasSubstr("25 % of the bytes that synchronous sends")));
  EXPECT_EQ(data()["advice"]["summary"]["rows"][1][0]["mark"], "take this");
}

TEST_F(ReportTest, NamesDamagedLinesAndShowsTheOthers) {
  write_run(at("run"), {.ended = false});
  std::ofstream(at("run") / "metrics.jsonl", std::ios::app)
      << R"({"event":"epoch","accuracy":3})" << "\n"
      << R"({"event":"st)";

  const Ended ended = report({"run"});

  EXPECT_EQ(ended.status, 0);
  EXPECT_THAT(lines(ended.err),
              ElementsAre(HasSubstr("metrics.jsonl:6: skipped: the epoch event has no number"),
                          HasSubstr("metrics.jsonl:7: skipped: this line is no JSON object"),
                          HasSubstr("there is no end event")));
  EXPECT_THAT(data()["problems"], SizeIs(3));
  EXPECT_EQ(curve("Test accuracy")[0]["y"], Json({50.0, 70.0}));
}

TEST_F(ReportTest, NamesARunThatCannotBeReadAndShowsTheOthers) {
  write_run(at("a"), {});
  write_run(at("b"), {});
  fs::remove(at("a") / "metrics.jsonl");
  fs::create_directory(at("a") / "metrics.jsonl");

  const Ended ended = report({"a", "b"});

  EXPECT_EQ(ended.status, 0) << ended.err;
  EXPECT_THAT(ended.err, HasSubstr("metrics.jsonl: cannot be read: Is a directory"));
  EXPECT_EQ(curve("Test accuracy").size(), 1U);
}

TEST_F(ReportTest, NamesAFewLinesOfAFileThatIsNoLog) {
  write_run(at("run"), {});
  std::ofstream log(at("run") / "metrics.jsonl");
  for (int line = 0; line < 100; ++line) log << "<html>\n";
  log.close();

  const Ended ended = report({"run"});

  EXPECT_EQ(ended.status, 0);
  EXPECT_THAT(ended.err, HasSubstr("metrics.jsonl: 95 more lines are no JSON objects"));
  EXPECT_LT(lines(ended.err).size(), 12U);
}

TEST_F(ReportTest, ReadsNumbersThatAreNullAndFieldsOfAnotherType) {
  write_run(at("run"), {});
  std::ofstream(at("run") / "metrics.jsonl", std::ios::app)
      << R"({"event":"step","total_step":25,"loss":null,"learning_rate":"fast"})" << "\n"
      << R"({"event":"invented","x":[1,{"y":2}]})" << "\n";

  const Ended ended = report({"run"});

  EXPECT_EQ(ended.status, 0);
  EXPECT_EQ(ended.err, "");
  EXPECT_EQ(curve("Training loss")[0]["y"], Json({1.5, 1.5, nullptr}));
}

TEST_F(ReportTest, ShowsARunThatHasOnlyItsConfiguration) {
  fs::create_directories(at("run"));
  std::ofstream(at("run") / "config.toml") << "[update]\nscheme = \"lazy\"\n";

  const Ended ended = report({"run"});

  EXPECT_EQ(ended.status, 0);
  EXPECT_THAT(ended.err, HasSubstr("metrics.jsonl: there is no such file"));
  EXPECT_THAT(ended.out, HasSubstr("No run has completed"));
}

// As of a run whose epoch lines were removed from the file.
TEST_F(ReportTest, SaysOfACompletedRunThatItHasNoAccuracy) {
  write_run(at("run"), {.accuracies = {}});

  const Ended ended = report({"run"});

  EXPECT_EQ(ended.status, 0) << ended.err;
  EXPECT_THAT(ended.out, HasSubstr("What has completed has no accuracy in its metrics.jsonl"));
}

TEST_F(ReportTest, LeavesTheTextsOfUsersText) {
  const std::string name = "<script>alert(1)<";
  write_run(at(name), {.scheme = "</script><b>"});

  const Ended ended = report({name});

  ASSERT_EQ(ended.status, 0) << ended.err;
  EXPECT_THAT(contents(page()), AllOf(Not(HasSubstr("<script>alert")), Not(HasSubstr("<b>"))));
  EXPECT_EQ(data()["title"], name);
  EXPECT_EQ(data()["variants"][0], "</script><b>");
}

TEST_F(ReportTest, TakesBytesThatAreNoUtf8) {
  write_run(at("run"), {.scheme = "\xff\xfe"});

  const Ended ended = report({"run"});

  EXPECT_EQ(ended.status, 0) << ended.err;
  EXPECT_TRUE(data().is_object());
}

TEST_F(ReportTest, TakesComparisonsInTheOrderOfTheirTablesAndAmongRuns) {
  write_run(at("runs") / "alone", {});
  const fs::path compared = at("runs") / "compared";
  write_run(compared / "synchronous" / "seed1", {});
  write_run(compared / "lazy" / "seed1", {.scheme = "lazy"});
  write_run(compared / "lazy" / "seed2", {.scheme = "lazy", .seed = 2});
  scratch_.write("runs/compared/compare.csv", "scheme,a\nsynchronous,\"1,5\"\nlazy,2\n");

  EXPECT_EQ(report({"runs/compared"}).err, "");
  EXPECT_EQ(data()["variants"], Json({"synchronous", "lazy"}));
  EXPECT_EQ(data()["runs"][2]["name"], "lazy/seed2");
  EXPECT_EQ(report({"runs"}).err, "");
  EXPECT_EQ(data()["runs"][0]["name"], "alone");
  EXPECT_EQ(data()["runs"][2]["name"], "compared/lazy/seed1");
  EXPECT_EQ(data()["variants"], Json({"synchronous", "compared/lazy"}));
}

// It counted as a second seed.
TEST_F(ReportTest, ReadsARunOnceThatIsNamedTwice) {
  write_run(at("runs") / "run", {});
  fs::create_directory_symlink("run", at("runs") / "latest");

  const Ended ended = report({"runs/run", "runs/run/", "runs/run/metrics.jsonl", "runs"});

  EXPECT_EQ(ended.status, 0) << ended.err;
  EXPECT_THAT(data()["runs"], SizeIs(1));
}

TEST_F(ReportTest, RefusesWhatIsNoRunAndWritesNothing) {
  fs::create_directories(at("empty"));
  scratch_.write("plan.json", "[]");

  for (const auto& [name, said] : {std::pair{"absent", "absent does not exist"},
                                   {"empty", "there is no run in"},
                                   {"plan.json", "is nothing that a report shows"}}) {
    expect_refused(report({name}), 2, said);
    EXPECT_FALSE(fs::exists(page()));
  }
}

TEST_F(ReportTest, RefusesToWriteWhereThereIsNoFolderOrAFileOfARun) {
  write_run(at("run"), {});
  const fs::path metrics = at("run") / "metrics.jsonl";
  const std::string before = contents(metrics);

  expect_refused(rondo({"report", at("run"), "--out", at("absent") / "page.html"}), 2,
                 "there is no folder");
  expect_refused(rondo({"report", at("run"), "--out", metrics}), 2,
                 "a file that a run or a comparison needs");
  EXPECT_EQ(contents(metrics), before);
}

}  // namespace
}  // namespace rondo::test::report_test
