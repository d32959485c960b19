#include "hosts/job.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <stdexcept>

namespace rondo::test {
namespace {

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  if (value == nullptr) throw std::runtime_error(std::string(name) + " must be set");
  return value;
}

[[noreturn]] void become(const std::vector<std::string>& command) {
  std::vector<std::string> words = command;
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  execvp(arguments[0], arguments.data());
  _exit(99);
}

int status_of(pid_t pid) {
  int status = 0;
  while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

bool has_ended(pid_t pid) {
  siginfo_t info{};
  return waitid(P_PID, static_cast<id_t>(pid), &info, WEXITED | WNOHANG | WNOWAIT) == 0 &&
         info.si_pid == pid;
}

std::string read_all(int file) {
  std::string text;
  std::array<char, 4096> part{};
  ssize_t got = 0;
  while ((got = pread(file, part.data(), part.size(), static_cast<off_t>(text.size()))) > 0) {
    text.append(part.data(), static_cast<std::size_t>(got));
  }
  return text;
}

// A port and a name that no other job of this process has.
std::string make_coordinator(int host, int wire) {
  static int jobs = 0;
  ++jobs;
  std::array<char, 128> text{};
  std::snprintf(text.data(), text.size(), "tcp:10.88.%d.%d:%d/%032x", wire, host, 7000 + jobs,
                static_cast<unsigned>(jobs));
  return text.data();
}

}  // namespace

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

void hosts(const std::vector<std::string>& words) {
  const pid_t pid = fork();
  if (pid == 0) {
    std::vector<std::string> command{variable("RONDO_HOSTS_SCRIPT")};
    command.insert(command.end(), words.begin(), words.end());
    become(command);
  }
  if (status_of(pid) != 0) throw std::runtime_error("hosts " + words.at(0) + " has failed");
}

Job::Job(std::vector<int> hosts, int wire)
    : hosts_(std::move(hosts)),
      ranks_(hosts_.size()),
      coordinator_(make_coordinator(hosts_.at(0), wire)) {
  set("RONDO_SECRET", "known to the ranks of one job");
}

Job::~Job() {
  for (Rank& rank : ranks_) {
    if (rank.pid > 0) {
      ::kill(rank.pid, SIGKILL);
      status_of(rank.pid);
    }
    if (rank.output >= 0) close(rank.output);
  }
}

void Job::set(const std::string& name, const std::string& value) {
  environment_.emplace_back(name, value);
}

void Job::start(const std::vector<std::string>& command) {
  for (int rank = 0; rank < size(); ++rank) start_rank(rank, command);
}

void Job::start_rank(int rank, const std::vector<std::string>& command) {
  Rank& started = at(rank);
  // In memory: nobody must read along for the rank to go on.
  started.output = memfd_create("output", MFD_CLOEXEC);
  // Appended to: processes that write at once would write over each other.
  if (started.output < 0 || fcntl(started.output, F_SETFL, O_APPEND) < 0) {
    throw std::runtime_error("memfd_create has failed");
  }
  started.pid = fork();
  if (started.pid != 0) return;
  dup2(started.output, STDOUT_FILENO);
  dup2(started.output, STDERR_FILENO);
  for (const auto& [name, value] : environment_) setenv(name.c_str(), value.c_str(), 1);
  setenv("RONDO_COORDINATOR", coordinator_.c_str(), 1);
  setenv("RONDO_RANK", std::to_string(rank).c_str(), 1);
  setenv("RONDO_SIZE", std::to_string(size()).c_str(), 1);
  // The script becomes the program: its process is the rank's.
  std::vector<std::string> words{variable("RONDO_HOSTS_SCRIPT"), "exec",
                                 std::to_string(hosts_.at(static_cast<std::size_t>(rank)))};
  words.insert(words.end(), command.begin(), command.end());
  become(words);
}

void Job::kill(int rank) const { ::kill(at(rank).pid, SIGKILL); }

std::string Job::output_until(int rank, const std::string& text) const {
  while (true) {
    const bool ended = has_ended(at(rank).pid);
    std::string output = read_all(at(rank).output);
    if (ended || output.find(text) != std::string::npos) return output;
    usleep(1000);
  }
}

Ended Job::wait(int rank) {
  Rank& waited = at(rank);
  const int status = status_of(waited.pid);
  waited.pid = -1;
  return {status, read_all(waited.output)};
}

std::string rank_program() { return variable("RONDO_TEST_RANK"); }

std::string rondo_program() { return variable("RONDO_PROGRAM"); }

}  // namespace rondo::test
