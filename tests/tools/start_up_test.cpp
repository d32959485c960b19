// Signals that reach `rondo train` before it trains. The configuration, or a file of the data, is a
// pipe, so that launcher and rank wait in their start-up for as long as a test likes.

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "support/program.hpp"
#include "support/scratch_folder.hpp"
#include "tools/runs.hpp"

namespace rondo::test::start_up_test {
namespace {

namespace fs = std::filesystem;

using testing::SizeIs;

class StartUpTest : public testing::Test {
 protected:
  StartUpTest() {
    for (const std::string& path : {config(), images()}) {
      if (mkfifo(path.c_str(), 0600) != 0) throw std::runtime_error("no named pipe");
    }
  }

  [[nodiscard]] std::string config() const { return scratch_.path() / "experiment.toml"; }
  [[nodiscard]] std::string images() const { return scratch_.path() / "train-images-idx3-ubyte"; }
  [[nodiscard]] fs::path out() const { return scratch_.path() / "run"; }

  // Returns once a process of `program` reads `path`; -1 when the program has ended.
  [[nodiscard]] static int open_for_reader(const Program& program, const std::string& path) {
    for (;;) {
      const int pipe = ::open(path.c_str(), O_WRONLY | O_NONBLOCK | O_CLOEXEC);
      if (pipe >= 0 || errno != ENXIO || program.has_ended()) return pipe;
    }
  }

 private:
  ScratchFolder scratch_;
};

bool write_and_close(int pipe) {
  const std::string text = small_run();
  const bool written = ::write(pipe, text.data(), text.size()) == static_cast<ssize_t>(text.size());
  ::close(pipe);
  return written;
}

// SIGUSR1 ended it, although the run is to go on.
TEST_F(StartUpTest, KeepsARequestForACheckpointUntilItTrains) {
  Program program(rondo_command({"train", "-n", "1", "--threads", "1", "--out", out(), "--set",
                                 "train.epochs=1", "--set", "checkpoint.keep=100", config()}));
  // A write to a program that has ended is an error here, and does not end the test.
  std::signal(SIGPIPE, SIG_IGN);
  const int launcher = open_for_reader(program, config());
  ASSERT_GE(launcher, 0);
  program.send(SIGUSR1);
  program.send(SIGUSR2);
  ASSERT_TRUE(write_and_close(launcher));
  // Then the launcher has read its configuration.
  std::vector<pid_t> ranks;
  while (ranks.empty() && !program.has_ended()) ranks = program.children();
  ASSERT_THAT(ranks, SizeIs(1));
  const int rank = open_for_reader(program, config());
  ASSERT_GE(rank, 0);
  kill(ranks[0], SIGUSR1);
  ASSERT_TRUE(write_and_close(rank));

  const Ended ended = program.wait();
  std::signal(SIGPIPE, SIG_DFL);
  EXPECT_EQ(ended.status, 0) << ended.err;
  EXPECT_TRUE(fs::exists(out() / "checkpoints" / "step-1")) << ended.out;
}

// The constructor of libgomp writes to a pipe that has no room: this is where the request comes. It
// ended the program. Without libgomp the program ends by itself.
TEST_F(StartUpTest, KeepsARequestThatComesBeforeMain) {
  constexpr int room = 40;
  const int errors = ::open(config().c_str(), O_RDWR | O_CLOEXEC);
  const int size = ::fcntl(errors, F_SETPIPE_SZ, 1);
  const std::string filling(static_cast<std::size_t>(size - room), ' ');
  ASSERT_EQ(::write(errors, filling.data(), filling.size()), size - room);

  Program program({"sh", "-c", "exec \"$0\" train no-file.toml 2> \"$1\"", rondo_path(), config()},
                  {{"OMP_DISPLAY_ENV", "true"}});
  for (int bytes = 0; bytes <= size - room && !program.has_ended();) {
    ASSERT_EQ(::ioctl(errors, FIONREAD, &bytes), 0);
  }
  program.send(SIGUSR1);
  ASSERT_GE(::fcntl(errors, F_SETPIPE_SZ, 1 << 20), 0);

  EXPECT_EQ(program.wait().status, 2);
  ::close(errors);
}

// A scheduler gives a job some seconds between SIGTERM and its end by force.
TEST_F(StartUpTest, SigtermEndsARunThatReadsItsData) {
  const fs::path experiment = out().parent_path() / "idx.toml";
  std::ofstream(experiment) << "[data]\nname = \"fashion-mnist\"\npath = \""
                            << out().parent_path().string() << "\"\n[model]\nname = \"lenet5\"\n";
  Program program(
      rondo_command({"train", "-n", "1", "--threads", "1", "--out", out(), experiment}));
  const int images_read = open_for_reader(program, images());
  ASSERT_GE(images_read, 0);

  program.send(SIGTERM);

  const Ended ended = program.wait();
  ::close(images_read);
  EXPECT_EQ(ended.status, 128 + SIGTERM) << ended.err;
}

}  // namespace
}  // namespace rondo::test::start_up_test
