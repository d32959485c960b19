// Runs the fuzzers for a short, fixed number of inputs, each a program of its own.

#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>

#include <gtest/gtest.h>

namespace {

void expect_nothing_found(const char* variable) {
  const char* program = std::getenv(variable);
  ASSERT_NE(program, nullptr);

  const pid_t child = ::fork();
  if (child == 0) {
    ::execl(program, program, "-runs=20000", "-seed=1", "-max_len=2048", "-verbosity=0", nullptr);
    ::_exit(127);
  }
  int status = -1;
  ::waitpid(child, &status, 0);

  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

TEST(FuzzTest, FindsNothingInTheStoresMessages) { expect_nothing_found("RONDO_STORE_FUZZ"); }

TEST(FuzzTest, FindsNothingInManifests) { expect_nothing_found("RONDO_MANIFEST_FUZZ"); }

}  // namespace
