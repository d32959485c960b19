#include "hosts/job.hpp"

#include <array>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <stdexcept>

namespace rondo::test {
namespace {

std::vector<std::string> script(const std::vector<std::string>& arguments) {
  std::vector<std::string> command{variable("RONDO_HOSTS_SCRIPT")};
  command.insert(command.end(), arguments.begin(), arguments.end());
  return command;
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
  const Ended ended = Program(script(words)).wait();
  if (ended.status != 0) {
    throw std::runtime_error("hosts " + words.at(0) + " has failed: " + ended.err);
  }
}

Job::Job(std::vector<int> hosts, int wire)
    : hosts_(std::move(hosts)),
      ranks_(hosts_.size()),
      coordinator_(make_coordinator(hosts_.at(0), wire)) {
  set("RONDO_SECRET", "known to the ranks of one job");
}

void Job::set(const std::string& name, const std::string& value) {
  environment_.emplace_back(name, value);
}

void Job::start(const std::vector<std::string>& command) {
  for (int rank = 0; rank < size(); ++rank) start_rank(rank, command);
}

void Job::start_rank(int rank, const std::vector<std::string>& command) {
  Environment environment = environment_;
  environment.emplace_back("RONDO_COORDINATOR", coordinator_);
  environment.emplace_back("RONDO_RANK", std::to_string(rank));
  environment.emplace_back("RONDO_SIZE", std::to_string(size()));
  const auto index = static_cast<std::size_t>(rank);
  // The script becomes the program: its process is the rank's.
  std::vector<std::string> words = script({"exec", std::to_string(hosts_.at(index))});
  words.insert(words.end(), command.begin(), command.end());
  ranks_.at(index) = std::make_unique<Program>(words, environment);
}

void Job::kill(int rank) const { at(rank).send(SIGKILL); }

std::string Job::output_until(int rank, const std::string& text) const {
  return at(rank).output_until(text);
}

Ended Job::wait(int rank) { return at(rank).wait(); }

std::string rank_program() { return variable("RONDO_TEST_RANK"); }

}  // namespace rondo::test
