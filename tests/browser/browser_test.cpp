// The page of `rondo report` in a real browser: headless Chromium runs its scripts and prints the
// document that they have made.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "support/program.hpp"
#include "support/reported_runs.hpp"
#include "support/scratch_folder.hpp"

namespace rondo::test {
namespace {

namespace fs = std::filesystem;

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

// Whoever has no Chromium in PATH can name it.
std::string chromium() {
  const char* named = std::getenv("RONDO_CHROMIUM");
  if (named != nullptr) return named;
  for (const char* path : {"/usr/bin/chromium", "/usr/bin/chromium-browser"}) {
    if (fs::exists(path)) return path;
  }
  return {};
}

std::size_t count(const std::string& text, const std::string& part) {
  std::size_t found = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) {
    ++found;
  }
  return found;
}

class BrowserTest : public testing::Test {
 protected:
  void SetUp() override {
    if (chromium().empty()) GTEST_SKIP() << "there is no chromium; see docs/contributing.md";
  }

  [[nodiscard]] fs::path at(const std::string& name) const { return scratch_.path() / name; }
  // The document after the scripts of the page ran, and then that of a reader; without the page's
  // scripts, because what they look for stands in them, too.
  [[nodiscard]] std::string document_of(const std::vector<std::string>& names,
                                        const std::string& reader = {}) const {
    std::vector<std::string> words = {"report", "--out", at("page.html")};
    for (const std::string& name : names) words.push_back(at(name));
    EXPECT_EQ(rondo(words).status, 0);
    std::ofstream(at("page.html"), std::ios::app) << "<script>" << reader << "</script>";
    Program browser({chromium(), "--headless", "--no-sandbox", "--disable-gpu",
                     "--disable-dev-shm-usage", "--user-data-dir=" + at("profile").string(),
                     "--dump-dom", "file://" + at("page.html").string()});
    const std::string document = browser.wait().out;
    return document.substr(0, document.find("<script id=\"data\""));
  }

  ScratchFolder scratch_;
};

TEST_F(BrowserTest, DrawsACurveForEachRunAndMarksWhatToTake) {
  write_run(at("a"), {.accuracies = {50.0, 70.0}});
  write_run(at("b"), {.scheme = "k_step", .accuracies = {60.0, 70.1}, .seconds = 1.0});

  const std::string document = document_of({"a", "b"});

  EXPECT_THAT(document, AllOf(HasSubstr("data-state=\"drawn\""), HasSubstr("Take k_step"),
                              HasSubstr("take this"), HasSubstr("Wait share, %"),
                              Not(HasSubstr("could not be drawn")), Not(HasSubstr("NaN"))));
  const std::size_t charts = count(document, "<svg viewBox");
  EXPECT_EQ(charts, 9U);  // all that do not belong to one scheme
  EXPECT_EQ(count(document, "class=\"line\""), 2 * charts);
}

TEST_F(BrowserTest, ShowsTextsOfUsersAsText) {
  const std::string name = "<img src=x onerror=document.title=1><script>document.title=2<";
  write_run(at(name), {.scheme = "</script><script>document.title=3;"});

  const std::string document = document_of({name});

  EXPECT_THAT(document, AllOf(HasSubstr("data-state=\"drawn\""), HasSubstr("&lt;img src=x"),
                              Not(HasSubstr("<img")), Not(HasSubstr("<script>document"))));
}

TEST_F(BrowserTest, DrawsARunThatHasNothingToDraw) {
  write_run(at("run"), {.accuracies = {}, .ended = false});

  const std::string document = document_of({"run"});

  EXPECT_THAT(document, AllOf(HasSubstr("data-state=\"drawn\""), HasSubstr("No run has completed"),
                              HasSubstr("Missing or damaged")));
}

TEST_F(BrowserTest, DrawsOnePointAndEqualValues) {
  write_run(at("run"), {.accuracies = {0.0}, .seconds = 0.0, .bytes_sent = 0.0});

  const std::string document = document_of({"run"});

  EXPECT_THAT(document, AllOf(HasSubstr("data-state=\"drawn\""), Not(HasSubstr("NaN")),
                              Not(HasSubstr("Infinity"))));
}

// A reader chooses another axis and saves the first chart. The file needs nothing of the page: its
// colours are values, and the name of the curve stands in it.
TEST_F(BrowserTest, SavesAChartAsAPicture) {
  write_run(at("run"), {.accuracies = {50.0, 70.0}});

  const std::string document = document_of({"run"}, R"(
    let saved = "";
    window.Blob = class { constructor(parts) { saved = parts[0]; } };
    URL.createObjectURL = () => "#";
    const axis = document.querySelector("select");
    axis.value = "reductions";
    axis.dispatchEvent(new Event("change"));
    document.querySelector("figure button").click();
    document.querySelector("h1").textContent = saved;
  )");

  const std::size_t begin = document.find("<h1>");
  const std::string picture = document.substr(begin, document.find("</h1>") - begin);
  EXPECT_THAT(picture, AllOf(HasSubstr("&lt;svg xmlns="), HasSubstr("global reductions"),
                             HasSubstr("&gt;synchronous&lt;"),
                             HasSubstr("&gt;Test accuracy, %&lt;"), HasSubstr("stroke: rgb("),
                             Not(HasSubstr("var(")), Not(HasSubstr("class=\"cursor\""))));
}

}  // namespace
}  // namespace rondo::test
