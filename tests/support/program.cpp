#include "support/program.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <stdexcept>
#include <utility>

namespace rondo::test {
namespace {

// Appended to, or processes that write at once would write over each other.
int memory_file(const char* name) {
  const int fd = memfd_create(name, MFD_CLOEXEC);
  if (fd < 0 || fcntl(fd, F_SETFL, O_APPEND) < 0) throw std::runtime_error("memfd_create failed");
  return fd;
}

int memory_file(const char* name, const std::string& text) {
  const int fd = memory_file(name);
  if (write(fd, text.data(), text.size()) < 0) throw std::runtime_error("write failed");
  lseek(fd, 0, SEEK_SET);
  return fd;
}

std::string read_all(int fd) {
  std::string text;
  std::array<char, 4096> part{};
  ssize_t got = 0;
  while ((got = pread(fd, part.data(), part.size(), static_cast<off_t>(text.size()))) > 0) {
    text.append(part.data(), static_cast<std::size_t>(got));
  }
  return text;
}

// Variables that the shell of whoever runs the tests may have, and that change how ranks start.
constexpr const char* of_the_shell[] = {
    "RONDO_RANK",       "RONDO_SIZE",      "RONDO_COORDINATOR",  "RONDO_FAKE_NODES",
    "RONDO_LOCAL_RANK", "RONDO_THREADS",   "RONDO_FABRIC",       "RONDO_INTERFACE",
    "RONDO_LATENCY_US", "OMP_NUM_THREADS", "RONDO_BANDWIDTH_GBS"};

[[noreturn]] void become(std::vector<std::string>& command, const Environment& environment) {
  for (const char* name : of_the_shell) unsetenv(name);
  for (const auto& [name, value] : environment) setenv(name.c_str(), value.c_str(), 1);
  std::vector<char*> arguments;
  for (std::string& argument : command) arguments.push_back(argument.data());
  arguments.push_back(nullptr);
  execvp(arguments[0], arguments.data());
  _exit(99);
}

}  // namespace

Child::~Child() {
  if (pid_ <= 0) return;
  send(SIGKILL);
  wait();
}

void Child::send(int signal) const { kill(pid_, signal); }

bool Child::has_ended() const {
  siginfo_t info{};
  return waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOHANG | WNOWAIT) == 0 &&
         info.si_pid == pid_;
}

int Child::wait() {
  if (pid_ <= 0) return -1;
  int status = 0;
  while (waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
  }
  pid_ = -1;
  return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

Program::Program(std::vector<std::string> command, const Environment& environment,
                 const std::string& input)
    : in_(memory_file("in", input)),
      out_(memory_file("out")),
      err_(memory_file("err")),
      child_(fork()) {
  if (child_.pid() != 0) return;
  dup2(in_, STDIN_FILENO);
  dup2(out_, STDOUT_FILENO);
  dup2(err_, STDERR_FILENO);
  // Whoever has started the tests may ignore some, as nohup does.
  for (const int signal : {SIGHUP, SIGINT, SIGTERM, SIGTSTP}) std::signal(signal, SIG_DFL);
  become(command, environment);
}

Program::~Program() {
  for (const int fd : {in_, out_, err_}) close(fd);
}

std::string Program::output_until(const std::string& text) const { return text_until(out_, text); }

std::string Program::errors_until(const std::string& text) const { return text_until(err_, text); }

std::string Program::text_until(int file, const std::string& text) const {
  while (true) {
    const bool ended = child_.has_ended();
    std::string output = read_all(file);
    if (ended || output.find(text) != std::string::npos) return output;
    usleep(1000);
  }
}

// SigCgt has a bit for each signal that is caught, in hexadecimal.
bool Program::handles(int signal) const {
  std::ifstream file("/proc/" + std::to_string(child_.pid()) + "/status");
  std::string word;
  while (file >> word && word != "SigCgt:") {
  }
  unsigned long long caught = 0;
  file >> std::hex >> caught;
  return (caught >> static_cast<unsigned>(signal - 1) & 1U) != 0;
}

std::vector<pid_t> Program::children() const {
  const std::string id = std::to_string(child_.pid());
  std::ifstream file("/proc/" + id + "/task/" + id + "/children");
  std::vector<pid_t> result;
  for (pid_t child = 0; file >> child;) result.push_back(child);
  return result;
}

Ended Program::wait() {
  const int status = child_.wait();
  return {status, read_all(out_), read_all(err_)};
}

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  if (value == nullptr) throw std::runtime_error(std::string(name) + " must be set");
  return value;
}

std::string rondo_path() { return variable("RONDO_PROGRAM"); }

std::vector<std::string> rondo_command(const std::vector<std::string>& arguments) {
  std::vector<std::string> command = {rondo_path()};
  command.insert(command.end(), arguments.begin(), arguments.end());
  return command;
}

Ended rondo(const std::vector<std::string>& arguments, const Environment& environment,
            const std::string& input) {
  return Program(rondo_command(arguments), environment, input).wait();
}

Ended rondo_redirected(const std::string& redirections, const std::vector<std::string>& arguments) {
  std::vector<std::string> command = {"sh", "-c", R"(exec "$0" "$@" )" + redirections};
  const std::vector<std::string> words = rondo_command(arguments);
  command.insert(command.end(), words.begin(), words.end());
  return Program(command).wait();
}

std::vector<std::string> lines(const std::string& text) {
  std::vector<std::string> result;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) result.push_back(line);
  return result;
}

}  // namespace rondo::test
