// `rondo generate`: completion scripts and manual pages, made of the program's own options, for the
// build, which installs them. Users have no need of it, so help does not show it.
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

enum class Generated { bash, zsh, fish, pages };

const Choices<Generated> generated_kinds = {{"bash", Generated::bash},
                                            {"zsh", Generated::zsh},
                                            {"fish", Generated::fish},
                                            {"man", Generated::pages}};

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
  Command generate = root.add("generate", "Write completion scripts and manual pages");
  generate.hidden();
  auto kind = std::make_shared<Generated>(Generated::bash);
  auto files = std::make_shared<std::vector<std::string>>();
  generate.choice("kind", *kind, generated_kinds, "What to write").required();
  generate.option("files FILE...", *files, "The manual pages, by their names");
  generate.does([kind, files, root](const CommandLine& /*line*/) {
    const CommandDescription program = root.describe();
    if (*kind == Generated::pages) {
      write_pages(program, *files);
    } else {
      const auto script = *kind == Generated::bash  ? bash_completion
                          : *kind == Generated::zsh ? zsh_completion
                                                    : fish_completion;
      fmt::print("{}", script(program));
    }
    return exit_done;
  });
}

}  // namespace rondo::tools
