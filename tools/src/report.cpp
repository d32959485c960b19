// `rondo report`: one HTML page about runs and comparisons, for a browser without network.
//
// A run may be damaged or of another version: read_runs() collects files that it could not use as
// problems, and the page and stderr show them beside the rest.

#include <fmt/format.h>

#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>
#include <system_error>
#include <vector>

#include "command.hpp"
#include "failure.hpp"
#include "files.hpp"
#include "report/report.hpp"
#include "say.hpp"

namespace rondo::tools {
namespace {

namespace fs = std::filesystem;

struct ReportOptions {
  std::vector<std::string> paths = {};
  fs::path out = {};
};

// One directory gets its own report; what is made of several lies where the user is.
fs::path output_of(const ReportOptions& options) {
  if (!options.out.empty()) return options.out;
  std::error_code ignored;
  const bool one = options.paths.size() == 1 && fs::is_directory(options.paths.front(), ignored);
  return one ? fs::path(options.paths.front()) / "report.html" : fs::path("report.html");
}

// The name of the folder, or of the first one with the number of the others.
std::string title_of(const std::vector<std::string>& paths) {
  std::error_code error;
  fs::path whole = fs::absolute(paths.front(), error).lexically_normal();
  if (!whole.has_filename()) whole = whole.parent_path();  // "run/"
  const std::string first = whole.filename().string();
  if (paths.size() == 1) return first;
  return fmt::format("{} and {} more", first, paths.size() - 1);
}

// The page is written even where something was damaged: it says what.
int run_report(const ReportOptions& options) {
  const fs::path out = output_of(options);
  expect_output(out);  // said before anything is read
  const std::vector<ReportedRun> runs = read_runs({options.paths.begin(), options.paths.end()});
  const nlohmann::json data = page_data(title_of(options.paths), runs);
  replace_file(out, page_of(data), "choose another file with --out");
  for (const auto& problem : data["problems"]) {
    say("rondo: {}\n", printable(problem.get<std::string>()));
  }
  // The answer is worth more than the page to whoever reads a log.
  fmt::print("{}\n{}\n", printable(data["advice"]["answer"].get<std::string>()), out.string());
  return exit_done;
}

}  // namespace

void add_report(Command& root) {
  Command report = root.add("report", "Make an HTML page about runs and comparisons");
  auto options = std::make_shared<ReportOptions>();
  report
      .option("paths PATH...", options->paths,
              "Run directories, and directories of rondo compare or of other runs")
      .required();
  report.option("-o,--out FILE", options->out,
                "The page (default: report.html in the one directory, else in this one)");
  report.footer(
      R"(The page needs no other file and no network. What is missing or damaged in a run is skipped
and named, on the page and on stderr. stdout gets the answer to which scheme to take, and
the path of the page. Status: 0 done, 2 something named is no run.)");
  report.does([options](const CommandLine& /*line*/) { return run_report(*options); });
}

}  // namespace rondo::tools
