#pragma once

// The tests of the program share words of commands, the texts of files, what a refusal is, and the
// configuration of a small run.

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/program.hpp"
#include "support/scratch_folder.hpp"

namespace rondo::test {

using Words = std::vector<std::string>;

/// `words` with `more` behind them.
inline Words joined(Words words, const Words& more) {
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

/// The events that `text` holds, a line each, as metrics.jsonl does; those of one kind if it is
/// named. A last line that is not whole is left out.
inline std::vector<nlohmann::json> events_in(const std::string& text,
                                             const std::string& kind = {}) {
  std::vector<nlohmann::json> events;
  for (const std::string& line : lines(text)) {
    const auto event = nlohmann::json::parse(line, nullptr, false);
    if (event.is_object() && (kind.empty() || event["event"] == kind)) events.push_back(event);
  }
  return events;
}

/// The command was refused with `status`, and one line says why.
inline void expect_refused(const Ended& ended, int status, const std::string& said) {
  EXPECT_EQ(ended.status, status) << said;
  EXPECT_EQ(ended.out, "") << said;
  EXPECT_THAT(lines(ended.err), testing::ElementsAre(testing::HasSubstr(said)));
}

/// A command that is refused.
struct Mistake {
  Words arguments;
  std::string said;  ///< in the line about it
  Environment environment = {};
};

/// The configuration of a run that takes a second. It ends within [train], so that keys of that
/// table may follow.
inline std::string small_run(int training_images = 128) {
  return R"(
[data]
name = "synthetic"
training = )" +
         std::to_string(training_images) + R"(
test = 32
[model]
name = "lenet5"
[train]
global_batch = 32
)";
}

}  // namespace rondo::test
