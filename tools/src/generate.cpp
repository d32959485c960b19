// `rondo complete` for the shells' completion and `rondo generate` for the manual pages, both made
// of the program's own options. Users have no need of them, so help does not show them.
//
// The build has to name all files that it installs. It names every page here, and a page that is
// missing, or of no command, ends the build.

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "failure.hpp"
#include "files.hpp"
#include "generate/generate.hpp"

namespace rondo::tools {
namespace {

struct Page {
  std::string file = {};  // "rondo-bench-tune.1"
  std::string text = {};
};

void add_pages(const CommandDescription& command, const CommandDescription* parent,
               std::vector<Page>& pages) {
  pages.push_back({page_name(command) + ".1", manual_page(command, parent)});
  for (const CommandDescription& below : command.commands) add_pages(below, &command, pages);
}

// Writes each page to the one of `files` that has its name.
void write_pages(const CommandDescription& program, const std::vector<std::string>& files) {
  std::vector<Page> pages;
  add_pages(program, nullptr, pages);
  for (const std::string& file : files) {
    const std::string name = std::filesystem::path(file).filename().string();
    const auto page = std::ranges::find(pages, name, &Page::file);
    if (page == pages.end()) {
      throw UsageError(fmt::format(
          "{} is the page of no command; correct tools/src/generate/meson.build", name));
    }
    replace_file(file, page->text, "choose another folder");
    pages.erase(page);
  }
  if (pages.empty()) return;
  throw UsageError(
      fmt::format("{} is missing among the pages; add it to tools/src/generate/meson.build",
                  pages.front().file));
}

}  // namespace

void add_generate(Command& root) {
  Command complete = root.add("complete", "Say what may come next on a command line");
  complete.hidden();
  complete.does([root](const CommandLine& line) {
    for (const std::string& offer : offers_for(root.describe(), line.behind_dashes)) {
      fmt::print("{}\n", offer);
    }
    return exit_done;
  });
  Command generate = root.add("generate", "Write manual pages");
  generate.hidden();
  auto files = std::make_shared<std::vector<std::string>>();
  generate.option("files FILE...", *files, "The manual pages, by their names").required();
  generate.does([files, root](const CommandLine& /*line*/) {
    write_pages(root.describe(), *files);
    return exit_done;
  });
}

}  // namespace rondo::tools
