// Files that take their place as a whole.

#include <rondo/train/output_file.hpp>

#include <sys/stat.h>

#include <filesystem>
#include <span>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <rondo/train/dataset.hpp>

#include "support/error_text.hpp"
#include "support/scratch_folder.hpp"

namespace rondo::train::output_file_test {
namespace {

namespace fs = std::filesystem;

using rondo::test::contents;
using rondo::test::error_text;
using testing::HasSubstr;

class OutputFileTest : public testing::Test {
 protected:
  [[nodiscard]] fs::path at(const std::string& name) const { return folder_.path() / name; }

  static void write(const fs::path& file, const std::string& text) {
    OutputFile output(file, "do this");
    output.write(std::as_bytes(std::span(text)));
    output.finish();
  }

  // The number of files in the folder.
  [[nodiscard]] auto files() const {
    return std::distance(fs::directory_iterator(folder_.path()), fs::directory_iterator());
  }

  rondo::test::ScratchFolder folder_;
};

// Both would write into one file, and each give it its place.
TEST_F(OutputFileTest, IsWrittenByOneAtATime) {
  OutputFile first(at("file"), "do this");
  first.write(std::as_bytes(std::span("first", 5)));

  EXPECT_THAT(error_text<DataError>([&] { return write(at("file"), "second"), 0; }),
              HasSubstr("file.part: is being written by another program"));

  first.finish();
  EXPECT_EQ(contents(at("file")), "first");
  write(at("file"), "second");
  EXPECT_EQ(contents(at("file")), "second");
}

TEST_F(OutputFileTest, TakesThePlaceOfAFile) {
  folder_.write("file", "old");

  write(at("file"), "new");

  EXPECT_EQ(contents(at("file")), "new");
  EXPECT_EQ(files(), 1);
}

TEST_F(OutputFileTest, LeavesTheOldFileAndNothingElseWhenItIsNotFinished) {
  folder_.write("file", "old");
  {
    OutputFile output(at("file"), "do this");
    output.write(std::as_bytes(std::span("new")));
  }

  EXPECT_EQ(contents(at("file")), "old");
  EXPECT_EQ(files(), 1);
}

TEST_F(OutputFileTest, FollowsSymbolicLinksToAFile) {
  fs::create_directory(at("folder"));
  fs::create_symlink("folder/file", at("second"));
  fs::create_symlink("second", at("first"));

  write(at("first"), "once");
  write(at("first"), "twice");

  EXPECT_TRUE(fs::is_symlink(at("first")));
  EXPECT_TRUE(fs::is_symlink(at("second")));
  EXPECT_EQ(contents(at("folder/file")), "twice");
}

// As root, renaming would have put a regular file in the place of /dev/null.
TEST_F(OutputFileTest, RefusesWhatIsNoRegularFile) {
  ASSERT_EQ(::mkfifo(at("pipe").c_str(), 0600), 0);
  fs::create_directory(at("folder"));
  fs::create_symlink("pipe", at("link"));

  for (const char* name : {"pipe", "link"}) {
    EXPECT_THAT(error_text<DataError>([&] { write(at(name), "text"); }),
                HasSubstr("is a device, a pipe or a socket; give the name of a regular file"));
  }
  EXPECT_THAT(error_text<DataError>([&] { write(at("folder"), "text"); }),
              HasSubstr("is a folder; give the name of a file"));

  EXPECT_TRUE(fs::is_fifo(at("pipe")));
  EXPECT_EQ(files(), 3);
}

TEST_F(OutputFileTest, SaysThatThereIsNoFolder) {
  EXPECT_THAT(problem_of_output(at("absent/file")), HasSubstr("there is no folder"));
  EXPECT_EQ(problem_of_output("file"), "");
}

TEST_F(OutputFileTest, EndsAnErrorOfTheSystemWithTheRemedy) {
  const fs::path longest = at(std::string(300, 'x'));

  EXPECT_THAT(error_text<DataError>([&] { write(longest, "text"); }),
              testing::EndsWith("cannot be written (File name too long); do this"));
}

}  // namespace
}  // namespace rondo::train::output_file_test
