// Runs a fuzzer, which is a program of its own, for a short, fixed number of inputs. It begins with
// the input in RONDO_FUZZ_SEED, where there is one.

#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <string>

#include <gtest/gtest.h>

namespace {

TEST(FuzzTest, FindsNothing) {
  const char* program = std::getenv("RONDO_FUZZER");
  ASSERT_NE(program, nullptr);
  const char* seed = std::getenv("RONDO_FUZZ_SEED");
  const std::string seeds = "-seed_inputs=" + std::string(seed == nullptr ? "" : seed);

  const pid_t child = ::fork();
  if (child == 0) {
    ::execl(program, program, "-runs=20000", "-seed=1", "-max_len=2048", "-verbosity=0",
            seed == nullptr ? nullptr : seeds.c_str(), nullptr);
    ::_exit(127);
  }
  int status = -1;
  ::waitpid(child, &status, 0);

  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

}  // namespace
