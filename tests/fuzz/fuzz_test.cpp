// Runs a fuzzer, which is a program of its own, for 20,000 inputs, or for 8 s if these take
// longer: some write files for each. It begins with the files of the folders in RONDO_FUZZ_SEEDS,
// which are separated by colons.

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <sstream>
#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace {

// As libFuzzer wants them: separated by commas.
std::string seeds() {
  const char* folders = std::getenv("RONDO_FUZZ_SEEDS");
  std::istringstream list(folders == nullptr ? "" : folders);
  std::vector<std::string> files;
  for (std::string folder; std::getline(list, folder, ':');) {
    for (const auto& entry : std::filesystem::directory_iterator(folder)) {
      if (entry.is_regular_file()) files.push_back(entry.path());
    }
  }
  std::ranges::sort(files);
  std::string names;
  for (const std::string& file : files) names += (names.empty() ? "" : ",") + file;
  return names;
}

// No input of so few bytes is a reason for an allocation of more than 512 MiB.
TEST(FuzzTest, FindsNothing) {
  const char* program = std::getenv("RONDO_FUZZER");
  ASSERT_NE(program, nullptr);
  const std::string names = seeds();
  const std::string begin_with = "-seed_inputs=" + names;

  const pid_t child = ::fork();
  if (child == 0) {
    ::execl(program, program, "-runs=20000", "-max_total_time=8", "-seed=1", "-max_len=4096",
            "-malloc_limit_mb=512", "-verbosity=0", names.empty() ? nullptr : begin_with.c_str(),
            nullptr);
    ::_exit(127);
  }
  int status = -1;
  ::waitpid(child, &status, 0);

  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

}  // namespace
