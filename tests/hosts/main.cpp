// Starts the tests once more inside of hosts that tests/support/hosts makes. Where it cannot, they
// run without any, and say why they were left out.

#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

namespace {

// Why there can be no hosts here; empty when there can.
std::string obstacle(const std::string& script) {
  FILE* said = popen((script + " possible 2>&1").c_str(), "r");
  if (said == nullptr) return "no shell";
  std::string text;
  std::array<char, 256> part{};
  while (std::fgets(part.data(), part.size(), said) != nullptr) text += part.data();
  if (pclose(said) == 0) return {};
  return text.empty() ? "hosts cannot be made here" : text;
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
