// Completion scripts and manual pages: that shells and formatters take them, and that they and the
// documents know the same commands as the program.

#include <filesystem>
#include <regex>
#include <set>
#include <string>
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
using testing::Contains;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::UnorderedElementsAre;

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

// In a folder with the files run.toml, other.txt and a folder runs.
class BashTest : public testing::Test {
 protected:
  BashTest() {
    script_ = folder_.write("script.bash", rondo({"generate", "bash"}).out).string();
    std::filesystem::create_directories(folder_.path() / "here/runs");
    folder_.write("here/run.toml", "");
    folder_.write("here/other.txt", "");
  }

  // The words that bash offers for the last of `words`.
  [[nodiscard]] Words complete(const Words& words) const {
    std::string line;
    for (const std::string& word : words) line += "'" + word + "' ";
    const std::string text = "cd " + (folder_.path() / "here").string() + " && source " + script_ +
                             " && COMP_WORDS=(" + line +
                             ") && COMP_CWORD=" + std::to_string(words.size() - 1) +
                             " && _rondo && printf '%s\\n' \"${COMPREPLY[@]}\"";
    const Ended ended = Program({"bash", "-c", text}).wait();
    EXPECT_THAT(ended.err, IsEmpty());
    Words offered = lines(ended.out);
    std::erase(offered, "");
    return offered;
  }

 private:
  ScratchFolder folder_;
  std::string script_;
};

TEST_F(BashTest, CompletesCommands) {
  EXPECT_THAT(complete({"rondo", "tr"}), UnorderedElementsAre("train"));
  EXPECT_THAT(complete({"rondo", "bench", "allr"}), UnorderedElementsAre("allreduce"));
  const Words all = complete({"rondo", ""});
  EXPECT_EQ(std::set<std::string>(all.begin(), all.end()), commands_in_help({}));
  EXPECT_THAT(all, Not(Contains("generate")));
}

TEST_F(BashTest, CompletesOptions) {
  EXPECT_THAT(complete({"rondo", "train", "--memory"}), UnorderedElementsAre("--memory-limit"));
  EXPECT_THAT(complete({"rondo", "bench", "allreduce", "--lim"}), UnorderedElementsAre("--limit"));
  EXPECT_THAT(complete({"rondo", "--ver"}), UnorderedElementsAre("--version"));
  // Neither that of a hidden option.
  EXPECT_THAT(complete({"rondo", "run", "--pa"}), IsEmpty());
}

TEST_F(BashTest, CompletesChoices) {
  EXPECT_THAT(complete({"rondo", "info", "--format", ""}), UnorderedElementsAre("text", "json"));
  EXPECT_THAT(complete({"rondo", "info", "--format", "=", "j"}), UnorderedElementsAre("json"));
  EXPECT_THAT(complete({"rondo", "bench", "allreduce", "--format", "="}),
              UnorderedElementsAre("table", "csv", "json"));
}

TEST_F(BashTest, CompletesFilesAndFolders) {
  EXPECT_THAT(complete({"rondo", "train", "ru"}), UnorderedElementsAre("run.toml", "runs"));
  EXPECT_THAT(complete({"rondo", "train", "--out", ""}), UnorderedElementsAre("runs"));
  EXPECT_THAT(complete({"rondo", "train", "-n", ""}), IsEmpty());
  EXPECT_THAT(complete({"rondo", "run", "-n", "2", "--", "oth"}),
              UnorderedElementsAre("other.txt"));
  EXPECT_THAT(complete({"rondo", "run", "--", "program", "--fo"}), IsEmpty());
}

TEST(CompletionTest, IsValidInZsh) {
  if (!in_path("zsh")) GTEST_SKIP() << "left out: there is no zsh";
  const ScratchFolder folder;
  const auto script = folder.write("_rondo", rondo({"generate", "zsh"}).out).string();
  const Ended ended = Program({"zsh", "-n", script}).wait();
  EXPECT_EQ(ended.status, 0) << ended.err;
}

TEST(CompletionTest, WorksInFish) {
  if (!in_path("fish")) GTEST_SKIP() << "left out: there is no fish";
  const ScratchFolder folder;
  const auto script = folder.write("rondo.fish", rondo({"generate", "fish"}).out).string();
  const auto complete = [&](const std::string& line) {
    const Ended ended =
        Program({"fish", "--no-config", "-c", "source " + script + "; complete -C '" + line + "'"},
                {{"HOME", folder.path().string()}})
            .wait();
    EXPECT_THAT(ended.err, IsEmpty());
    return ended.out;
  };
  EXPECT_THAT(complete("rondo tra"), HasSubstr("train\t"));
  EXPECT_THAT(complete("rondo info --format "), AllOf(HasSubstr("text"), HasSubstr("json")));
  EXPECT_THAT(complete("rondo bench al"), AllOf(HasSubstr("allreduce"), Not(HasSubstr("train"))));
  EXPECT_THAT(complete("rondo bench allreduce --lim"), HasSubstr("--limit"));
  EXPECT_THAT(complete("rondo "), Not(HasSubstr("generate")));
}

// Pages of all commands that help lists, with no more and no less.
class PagesTest : public testing::Test {
 protected:
  PagesTest() {
    add("rondo");
    for (const std::string& command : commands_in_help({})) add("rondo-" + command);
    for (const std::string& command : commands_in_help({"bench"})) add("rondo-bench-" + command);
    ended_ = rondo(joined({"generate", "man"}, files_));
  }

  void add(const std::string& page) { files_.push_back((folder_.path() / (page + ".1")).string()); }
  [[nodiscard]] std::string page(const std::string& name) const {
    return text_of(folder_.path() / (name + ".1"));
  }

  ScratchFolder folder_;
  Words files_;
  Ended ended_;
};

TEST_F(PagesTest, AreThereForEveryCommand) {
  EXPECT_EQ(ended_.status, 0) << ended_.err;
  for (const std::string& file : files_) EXPECT_THAT(text_of(file), HasSubstr(".SH SYNOPSIS"));
  EXPECT_THAT(page("rondo"), AllOf(HasSubstr("rondo\\-doctor"), Not(HasSubstr("generate\\fR"))));
  EXPECT_THAT(page("rondo-run"), Not(HasSubstr("\\-\\-part")));
}

TEST_F(PagesTest, AreRefusedWhereTheListIsWrong) {
  expect_refused(rondo(joined({"generate", "man"}, {files_.begin() + 1, files_.end()})), 2,
                 "rondo.1 is missing among the pages");
  expect_refused(rondo({"generate", "man", "rondo-walk.1"}), 2, "page of no command");
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
  const std::string text = text_of(sources() / "docs/command-line.md");
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
  const std::string known = rondo({"generate", "bash"}).out;
  const std::string text = text_of(sources() / "docs/command-line.md");
  const std::regex option("`(--[a-z][a-z-]+)");
  for (auto it = std::sregex_iterator(text.begin(), text.end(), option);
       it != std::sregex_iterator(); ++it) {
    EXPECT_THAT(known, HasSubstr((*it)[1].str()));
  }
}

}  // namespace
}  // namespace rondo::test::generate_test
