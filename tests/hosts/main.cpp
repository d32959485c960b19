// Starts the tests once more inside of hosts that tests/support/hosts makes. Where it cannot, they
// run without any, and say why they were left out.

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "support/program.hpp"

namespace {

// Why there can be no hosts here; empty when there can.
std::string obstacle(const std::string& script) {
  const rondo::test::Ended ended = rondo::test::Program({script, "possible"}).wait();
  if (ended.status == 0) return {};
  const std::string said = ended.out + ended.err;
  return said.empty() ? "hosts cannot be made here" : said;
}

void become_with_hosts(const std::string& script, int argc, char** argv) {
  std::vector<std::string> words{script, "with", "3"};
  words.insert(words.end(), argv, argv + argc);
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  execv(arguments[0], arguments.data());
}

}  // namespace

int main(int argc, char** argv) {
  const char* script = std::getenv("RONDO_HOSTS_SCRIPT");
  if (script != nullptr && std::getenv("RONDO_HOSTS") == nullptr) {
    const std::string reason = obstacle(script);
    if (reason.empty()) become_with_hosts(script, argc, argv);
    setenv("RONDO_HOSTS_MISSING", reason.c_str(), 1);
  }
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
