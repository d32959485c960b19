// Names by pattern, against a matcher that tries everything.

#include "model/names.hpp"

#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

namespace rondo::train::name_pattern_test {
namespace {

bool by_trying(std::string_view pattern, std::string_view name) {
  if (pattern.empty()) return name.empty();
  if (pattern[0] == '*') {
    return by_trying(pattern.substr(1), name) ||
           (!name.empty() && by_trying(pattern, name.substr(1)));
  }
  if (name.empty() || (pattern[0] != '?' && pattern[0] != name[0])) return false;
  return by_trying(pattern.substr(1), name.substr(1));
}

/// All words of up to `length` of the letters.
std::vector<std::string> words(std::string_view letters, std::size_t length) {
  std::vector<std::string> all{""};
  for (std::size_t first = 0; all.back().size() < length; ++first) {
    const std::string start = all[first];
    for (const char letter : letters) all.push_back(start + letter);
  }
  return all;
}

TEST(NamePatternTest, AgreesWithTryingEverything) {
  for (const std::string& pattern : words("ab*?", 5)) {
    for (const std::string& name : words("ab", 5)) {
      EXPECT_EQ(matches(pattern, name), by_trying(pattern, name)) << pattern << " and " << name;
    }
  }
}

TEST(NamePatternTest, MatchesWholeNames) {
  EXPECT_TRUE(matches("layer4.*", "layer4.0.conv1"));
  EXPECT_TRUE(matches("*conv?", "layer4.0.conv1"));
  EXPECT_FALSE(matches("layer4", "layer4.0.conv1"));
  EXPECT_FALSE(matches("layer4.?", "layer4.0.conv1"));
}

}  // namespace
}  // namespace rondo::train::name_pattern_test
