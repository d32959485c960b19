// Starts one process as a direct child.
//
// A child reports through a pipe whether it could execute the command: the pipe closes when it
// does, and carries errno otherwise. The kernel kills it with its parent.

#include "launch/spawn.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>

#include <rondo/transport/usable_cpus.hpp>

#include "failure.hpp"
#include "files.hpp"

namespace rondo::tools {
namespace {

// keep_running_beyond_file_size() has changed what SIGXFSZ does.
bool restores_file_size_signal = false;

// As execvpe() wants them; valid as long as `strings`.
std::vector<char*> pointers(const std::vector<std::string>& strings) {
  std::vector<char*> result;
  result.reserve(strings.size() + 1);
  // exec does not write to its arguments; its declaration is older than const.
  for (const std::string& s : strings) result.push_back(const_cast<char*>(s.c_str()));
  result.push_back(nullptr);
  return result;
}

// Makes `source` a standard stream of the command. Where it is already, dup2() would leave it to be
// closed by execvpe().
void become_stream(int source, int stream) {
  const int result = source == stream ? fcntl(stream, F_SETFD, 0) : dup2(source, stream);
  if (result < 0) throw std::system_error(errno, std::generic_category());
}

// Standard input of all ranks but the first.
void read_nothing() {
  const int null = open("/dev/null", O_RDONLY | O_CLOEXEC);
  if (null < 0) throw std::system_error(errno, std::generic_category());
  become_stream(null, STDIN_FILENO);
}

// All other descriptors are closed by execvpe().
void keep_open(const std::vector<int>& descriptors) {
  for (const int fd : descriptors) {
    if (fcntl(fd, F_SETFD, 0) != 0) throw std::system_error(errno, std::generic_category());
  }
}

// Runs in the child. On a host of several, a thread of the launcher may have been in malloc() when
// this copy of it was made, which glibc's survives.
[[noreturn]] void become(const Spawn& spawn, pid_t parent, int errors) {
  int error = 0;
  try {
    // A launcher that is killed must not leave ranks behind.
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    // The parent may have ended before the line above: then nobody would kill us.
    if (getppid() != parent) _exit(1);
    if (!spawn.cpus.empty()) transport::bind_to(spawn.cpus);
    if (spawn.own_group) setpgid(0, 0);
    if (spawn.input >= 0) become_stream(spawn.input, STDIN_FILENO);
    if (spawn.input < 0 && !spawn.keeps_stdin) read_nothing();
    if (spawn.output >= 0) become_stream(spawn.output, STDOUT_FILENO);
    if (spawn.errors >= 0) become_stream(spawn.errors, STDERR_FILENO);
    keep_open(spawn.descriptors);
    auto command = pointers(spawn.command);
    auto environment = pointers(spawn.environment);
    // The last thing but the mask: until exec there are as many open files as in the parent.
    if (spawn.open_files) setrlimit(RLIMIT_NOFILE, &*spawn.open_files);
    // What is ignored stays so in the program.
    if (restores_file_size_signal) std::signal(SIGXFSZ, SIG_DFL);
    // A rank starts with the signal mask that the launcher had before it held signals.
    sigprocmask(SIG_SETMASK, &spawn.signal_mask, nullptr);
    execvpe(command[0], command.data(), environment.data());
    error = errno;
  } catch (const std::system_error& failure) {
    error = failure.code().value();
  }
  const ssize_t written = write(errors, &error, sizeof error);
  // Not exit(): handlers and buffers of the parent must not run twice.
  _exit(written == sizeof error ? 1 : 2);
}

// The child's errno, or 0 once the command executes: that closes the pipe's other end.
int read_errno(int fd) {
  int error = 0;
  ssize_t got = -1;
  do {
    got = read(fd, &error, sizeof error);
  } while (got < 0 && errno == EINTR);
  return got == sizeof error ? error : 0;
}

[[noreturn]] void fail_to_fork() {
  const int error = errno;
  std::string what = "cannot start a process";
  if (error == EAGAIN) what += std::string(" ") + beyond_limits;
  throw std::system_error(error, std::generic_category(), what);
}

}  // namespace

void keep_running_beyond_file_size() {
  struct sigaction before = {};
  sigaction(SIGXFSZ, nullptr, &before);
  if (before.sa_handler != SIG_DFL) return;
  std::signal(SIGXFSZ, SIG_IGN);
  restores_file_size_signal = true;
}

int exit_status_of(const ExecuteError& error) {
  return error.code().value() == ENOENT ? exit_not_found : exit_cannot_execute;
}

pid_t start(const Spawn& spawn) {
  int ends[2] = {-1, -1};
  if (pipe2(ends, O_CLOEXEC) != 0) throw std::system_error(errno, std::generic_category(), "pipe2");
  const Descriptor from_child(ends[0]);
  Descriptor to_parent(ends[1]);

  const pid_t parent = getpid();
  const pid_t child = fork();
  if (child < 0) fail_to_fork();
  if (child == 0) become(spawn, parent, to_parent.value());

  // Else the read below would never end: this process would hold the pipe open itself.
  to_parent.close();
  const int error = read_errno(from_child.value());
  // Collected at once, so that the supervisor never hears of it.
  if (error != 0) {
    waitpid(child, nullptr, 0);
    throw ExecuteError(error, std::generic_category(),
                       "cannot execute '" + spawn.command.front() + "'");
  }
  return child;
}

bool ends_by(pid_t child, std::chrono::steady_clock::time_point until) {
  const Descriptor process(static_cast<int>(syscall(SYS_pidfd_open, child, 0)));
  for (pollfd entry{.fd = process.value(), .events = POLLIN, .revents = 0};;) {
    const auto left =
        std::chrono::ceil<std::chrono::milliseconds>(until - std::chrono::steady_clock::now())
            .count();
    const int ready = poll(&entry, 1, static_cast<int>(std::max<std::int64_t>(left, 0)));
    if (ready >= 0 || errno != EINTR) return ready > 0;
  }
}

}  // namespace rondo::tools
