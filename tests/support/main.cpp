// The main function of all test programs: one program holds many subjects, one a source file, and
// `PROGRAM --subject=NAME` runs the cases that stand in NAME_test.cpp. --gtest_filter narrows them.

#include <fnmatch.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace {

constexpr std::string_view subject_option = "--subject=";

/// The value of --subject, which is taken out of the arguments; empty when there is none.
std::string take_subject(std::vector<char*>& arguments) {
  const auto is_subject = [](const char* word) {
    return std::string_view(word).starts_with(subject_option);
  };
  const auto found = std::ranges::find_if(arguments, is_subject);
  if (found == arguments.end()) return {};
  std::string subject = *found + subject_option.size();
  arguments.erase(found);
  return subject;
}

bool stands_in(const testing::TestInfo& test, const std::string& subject) {
  const std::string_view path = test.file();
  const std::size_t slash = path.rfind('/');
  return path.substr(slash == std::string_view::npos ? 0 : slash + 1) == subject + "_test.cpp";
}

/// Does one of the patterns, which colons separate, match?
bool matches(const std::string& name, std::string_view patterns) {
  while (!patterns.empty()) {
    const std::size_t colon = std::min(patterns.find(':'), patterns.size());
    const std::string pattern(patterns.substr(0, colon));
    if (fnmatch(pattern.c_str(), name.c_str(), 0) == 0) return true;
    patterns.remove_prefix(std::min(colon + 1, patterns.size()));
  }
  return false;
}

/// As GoogleTest's filter: POSITIVE-NEGATIVE.
bool passes(const std::string& name, std::string_view filter) {
  const std::size_t dash = std::min(filter.find('-'), filter.size());
  const std::string_view wanted = filter.substr(0, dash);
  const std::string_view unwanted = filter.substr(std::min(dash + 1, filter.size()));
  return (wanted.empty() || matches(name, wanted)) && !matches(name, unwanted);
}

/// A filter for the cases of `subject` that pass the present one.
std::string filter_of(const std::string& subject) {
  const std::string present = testing::GTEST_FLAG(filter);
  std::string names;
  const testing::UnitTest& all = *testing::UnitTest::GetInstance();
  for (int s = 0; s < all.total_test_suite_count(); ++s) {
    const testing::TestSuite& suite = *all.GetTestSuite(s);
    for (int t = 0; t < suite.total_test_count(); ++t) {
      const testing::TestInfo& test = *suite.GetTestInfo(t);
      const std::string name = std::string(suite.name()) + "." + test.name();
      if (stands_in(test, subject) && passes(name, present)) names += name + ":";
    }
  }
  return names;
}

}  // namespace

int main(int argc, char** argv) {
  std::vector<char*> arguments(argv, argv + argc);
  const std::string subject = take_subject(arguments);
  int count = static_cast<int>(arguments.size());
  arguments.push_back(nullptr);
  testing::InitGoogleMock(&count, arguments.data());
  if (!subject.empty()) {
    const std::string filter = filter_of(subject);
    if (filter.empty()) {
      std::fprintf(stderr, "%s holds no case of %s_test.cpp that the filter lets pass\n", argv[0],
                   subject.c_str());
      return EXIT_FAILURE;
    }
    testing::GTEST_FLAG(filter) = filter;
  }
  return RUN_ALL_TESTS();
}
