#include "program.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <stdexcept>
#include <utility>

namespace rondo::tools::test {
namespace {

// Output goes to files in memory: nobody must read along for the program to go on. Appended to, or
// ranks that write at once would write over each other.
int memory_file(const char* name) {
  const int fd = memfd_create(name, MFD_CLOEXEC);
  if (fd < 0 || fcntl(fd, F_SETFL, O_APPEND) < 0) throw std::runtime_error("memfd_create failed");
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

bool has_ended(pid_t pid) {
  siginfo_t info{};
  return waitid(P_PID, static_cast<id_t>(pid), &info, WEXITED | WNOHANG | WNOWAIT) == 0 &&
         info.si_pid == pid;
}

}  // namespace

std::string rondo_path() {
  const char* path = std::getenv("RONDO_PROGRAM");
  if (path == nullptr) throw std::runtime_error("RONDO_PROGRAM must name the program to test");
  return path;
}

Program::Program(const std::vector<std::string>& arguments, const Environment& environment,
                 const std::string& input)
    : in_(memory_file("in")), out_(memory_file("out")), err_(memory_file("err")) {
  if (write(in_, input.data(), input.size()) < 0) throw std::runtime_error("write failed");
  lseek(in_, 0, SEEK_SET);
  pid_ = fork();
  if (pid_ == 0) become(arguments, environment);
}

void Program::become(const std::vector<std::string>& arguments,
                     const Environment& environment) const {
  dup2(in_, STDIN_FILENO);
  dup2(out_, STDOUT_FILENO);
  dup2(err_, STDERR_FILENO);
  for (const auto& [name, value] : environment) setenv(name.c_str(), value.c_str(), 1);
  std::string path = rondo_path();
  std::vector<std::string> words = arguments;
  std::vector<char*> argv{path.data()};
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  execv(argv[0], argv.data());
  _exit(99);
}

Program::~Program() {
  if (pid_ > 0) {
    send(SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  for (const int fd : {in_, out_, err_}) close(fd);
}

void Program::send(int signal) const { kill(pid_, signal); }

std::string Program::output_until(const std::string& text) { return text_until(out_, text); }

std::string Program::errors_until(const std::string& text) { return text_until(err_, text); }

std::string Program::text_until(int file, const std::string& text) const {
  while (true) {
    const bool ended = has_ended(pid_);
    std::string output = read_all(file);
    if (ended || output.find(text) != std::string::npos) return output;
    usleep(1000);
  }
}

std::vector<pid_t> Program::children() const {
  const std::string id = std::to_string(pid_);
  std::ifstream file("/proc/" + id + "/task/" + id + "/children");
  std::vector<pid_t> result;
  for (pid_t child = 0; file >> child;) result.push_back(child);
  return result;
}

Ended Program::wait() {
  int status = 0;
  while (waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
  }
  pid_ = -1;
  const int code = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
  return {code, read_all(out_), read_all(err_)};
}

Ended rondo(const std::vector<std::string>& arguments, const Program::Environment& environment,
            const std::string& input) {
  return Program(arguments, environment, input).wait();
}

std::vector<std::string> lines(const std::string& text) {
  std::vector<std::string> result;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) result.push_back(line);
  return result;
}

}  // namespace rondo::tools::test
