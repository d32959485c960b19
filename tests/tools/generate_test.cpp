// Completion and manual pages: that shells and formatters take them, and that they and the
// documents know the same commands as the program.

#include <filesystem>
#include <regex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/program.hpp"
#include "support/scratch_folder.hpp"
#include "support/sources.hpp"
#include "tools/runs.hpp"

namespace rondo::test::generate_test {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::UnorderedElementsAreArray;

bool in_path(const std::string& program) {
  return Program({"sh", "-c", "command -v " + program}).wait().status == 0;
}

// The commands that help lists below "Subcommands:".
std::set<std::string> commands_in_help(const Words& command) {
  std::set<std::string> names;
  bool listed = false;
  for (const std::string& line : lines(rondo(joined(command, {"--help"})).out)) {
    if (listed && line.starts_with("  ") && line[2] != ' ') {
      // An alias may follow behind a comma.
      names.insert(line.substr(2, line.find_first_of(" ,", 2) - 2));
    }
    listed |= line.starts_with("Subcommands:");
  }
  return names;
}

// Words behind the program's name, and those that may stand in place of its last word, in a
// folder with the files run.toml, other.txt and a folder runs.
const std::vector<std::pair<Words, Words>> typed = {
    {{"tr"}, {"train"}},
    {{"gen"}, {}},
    {{"bench", "allr"}, {"allreduce"}},
    {{"train", "--memory"}, {"--memory-limit"}},
    {{"bench", "allreduce", "--lim"}, {"--limit"}},
    {{"--ver"}, {"--version"}},
    {{"run", "--pa"}, {}},  // hidden
    {{"info", "--format", ""}, {"text", "json"}},
    {{"info", "--format", "=", "j"}, {"json"}},
    {{"info", "--format=j"}, {"--format=json"}},
    {{"bench", "allreduce", "--format", "="}, {"table", "csv", "json"}},
    {{"train", "ru"}, {"run.toml", "runs"}},
    {{"train", "--out", ""}, {"runs"}},
    {{"train", "-n", ""}, {}},
    {{"run", "-n", "2", "--", "oth"}, {"other.txt"}},
    {{"run", "--", "program", "--fo"}, {}}};

class CompletionTest : public testing::Test {
 protected:
  CompletionTest() {
    std::filesystem::create_directories(folder_.path() / "runs");
    folder_.write("run.toml", "");
    folder_.write("other.txt", "");
  }

  // The output of `shell` when it runs `text` in the folder, behind the script of this name.
  [[nodiscard]] std::string in(const Words& shell, const std::string& script,
                               const std::string& text) const {
    const auto path = sources() / "tools/completion" / script;
    const std::string before =
        "cd '" + folder_.path().string() + "'; source '" + path.string() + "'; ";
    const Ended ended =
        Program(joined(shell, {before + text}), {{"HOME", folder_.path().string()}}).wait();
    EXPECT_THAT(ended.err, IsEmpty());
    return ended.out;
  }
  [[nodiscard]] Words in_bash(const Words& words) const {
    std::string line = "'" + rondo_path() + "'";
    for (const std::string& word : words) line += " '" + word + "'";
    Words offered =
        lines(in({"bash", "-c"}, "rondo.bash",
                 "COMP_WORDS=(" + line + "); COMP_CWORD=" + std::to_string(words.size()) +
                     "; _rondo; printf '%s\\n' \"${COMPREPLY[@]}\""));
    std::erase(offered, "");
    return offered;
  }

 private:
  ScratchFolder folder_;
};

TEST_F(CompletionTest, WorksInBash) {
  for (const auto& [words, offered] : typed) {
    EXPECT_THAT(in_bash(words), UnorderedElementsAreArray(offered)) << words.back();
  }
  const Words all = in_bash({""});
  EXPECT_EQ(std::set<std::string>(all.begin(), all.end()), commands_in_help({}));
}

TEST_F(CompletionTest, IsValidInZsh) {
  if (!in_path("zsh")) GTEST_SKIP() << "left out: there is no zsh";
  const auto script = sources() / "tools/completion/_rondo";
  EXPECT_EQ(Program({"zsh", "-n", script.string()}).wait().status, 0);
}

TEST_F(CompletionTest, WorksInFish) {
  if (!in_path("fish")) GTEST_SKIP() << "left out: there is no fish";
  const auto complete = [&](const std::string& line) {
    return in({"fish", "--no-config", "-c"}, "rondo.fish",
              "complete -C '" + rondo_path() + " " + line + "'");
  };
  EXPECT_THAT(complete("tra"), HasSubstr("train\t"));
  EXPECT_THAT(complete("info --format "), AllOf(HasSubstr("text"), HasSubstr("json")));
  EXPECT_THAT(complete("info --format=j"), HasSubstr("--format=json"));
  EXPECT_THAT(complete("train ru"), AllOf(HasSubstr("run.toml"), HasSubstr("runs/")));
  EXPECT_THAT(complete(""), AllOf(HasSubstr("bench"), Not(HasSubstr("generate"))));
}

// Pages of all commands that help lists, with no more and no less.
class PagesTest : public testing::Test {
 protected:
  PagesTest() {
    add("rondo");
    for (const std::string& command : commands_in_help({})) add("rondo-" + command);
    for (const std::string& command : commands_in_help({"bench"})) add("rondo-bench-" + command);
    ended_ = rondo(joined({"generate"}, files_));
  }

  void add(const std::string& page) { files_.push_back((folder_.path() / (page + ".1")).string()); }
  [[nodiscard]] std::string page(const std::string& name) const {
    return contents(folder_.path() / (name + ".1"));
  }

  ScratchFolder folder_;
  Words files_;
  Ended ended_;
};

TEST_F(PagesTest, AreThereForEveryCommand) {
  EXPECT_EQ(ended_.status, 0) << ended_.err;
  for (const std::string& file : files_) EXPECT_THAT(contents(file), HasSubstr(".SH SYNOPSIS"));
  EXPECT_THAT(page("rondo"), AllOf(HasSubstr("rondo\\-doctor"), Not(HasSubstr("generate\\fR"))));
  EXPECT_THAT(page("rondo-run"), Not(HasSubstr("\\-\\-part")));
}

TEST_F(PagesTest, AreRefusedWhereTheListIsWrong) {
  expect_refused(rondo(joined({"generate"}, {files_.begin() + 1, files_.end()})), 2,
                 "rondo.1 is missing among the pages");
  expect_refused(rondo({"generate", "rondo-walk.1"}), 2, "page of no command");
}

TEST_F(PagesTest, AreFormattedWithoutWarnings) {
  if (!in_path("groff")) GTEST_SKIP() << "left out: there is no groff";
  for (const std::string& file : files_) {
    const Ended ended = Program({"groff", "-man", "-Tutf8", "-wall", file}).wait();
    EXPECT_EQ(ended.status, 0);
    EXPECT_THAT(ended.err, IsEmpty()) << file;
  }
}

TEST_F(PagesTest, PassMandoc) {
  if (!in_path("mandoc")) GTEST_SKIP() << "left out: there is no mandoc";
  for (const std::string& file : files_) {
    Words said = lines(Program({"mandoc", "-T", "lint", "-W", "warning", file}).wait().out);
    // A date would make each build another one.
    std::erase_if(said, [](const auto& line) { return line.find("missing date") != line.npos; });
    EXPECT_THAT(said, IsEmpty());
  }
}

// docs/command-line.md begins with a table of all commands.
TEST(DocumentsTest, NameEveryCommandAndNoOther) {
  const std::string text = contents(sources() / "docs/command-line.md");
  const std::regex row("\n\\| \\[`rondo ([a-z-]+)");
  std::set<std::string> documented;
  for (auto it = std::sregex_iterator(text.begin(), text.end(), row); it != std::sregex_iterator();
       ++it) {
    documented.insert((*it)[1]);
  }
  EXPECT_EQ(documented, commands_in_help({}));
}

// Every option that the documents of a command name exists somewhere in the program.
TEST(DocumentsTest, NameOnlyOptionsThatExist) {
  std::string known = rondo({"--help"}).out;
  for (const std::string& command : commands_in_help({})) known += rondo({command, "--help"}).out;
  for (const std::string& command : commands_in_help({"bench"})) {
    known += rondo({"bench", command, "--help"}).out;
  }
  const std::string text = contents(sources() / "docs/command-line.md");
  const std::regex option("`(--[a-z][a-z-]+)");
  for (auto it = std::sregex_iterator(text.begin(), text.end(), option);
       it != std::sregex_iterator(); ++it) {
    EXPECT_THAT(known, HasSubstr((*it)[1].str()));
  }
}

}  // namespace
}  // namespace rondo::test::generate_test
