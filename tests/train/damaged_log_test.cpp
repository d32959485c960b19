// A metrics.jsonl that was damaged after the checkpoint from which the run goes on: the run ends as
// if nothing had happened, what can be read stays, and what cannot is set aside and told.

#include <cstddef>
#include <filesystem>
#include <fstream>
#include <functional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "checkpoint/resume.hpp"
#include "checkpoint/storage.hpp"
#include "support/scratch_folder.hpp"
#include "train/resumed_runs.hpp"
#include "trainer/damaged_log.hpp"

namespace rondo::train::damaged_log_test {
namespace {

namespace fs = std::filesystem;

using rondo::test::contents;
using rondo::test::ScratchFolder;
using test::events;
using test::experiment_of;
using test::run_in;
using test::RunEnd;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;
using testing::SizeIs;

void write(const fs::path& file, const std::string& text) {
  std::ofstream(file, std::ios::binary) << text;
}

// A run that was stopped after 8 of 12 steps, with events of the steps 2, 4, 5, 7 and 8.
class DamagedLogTest : public testing::Test {
 protected:
  DamagedLogTest() { EXPECT_TRUE(run_in(folder_.path(), 1, experiment_, {}, 9).stopped); }

  [[nodiscard]] fs::path log() const { return folder_.path() / "metrics.jsonl"; }
  [[nodiscard]] std::string set_aside() const { return contents(log().concat(".damaged")); }

  // Where the first event of this kind begins.
  [[nodiscard]] std::size_t place_of(const std::string& kind) const {
    return contents(log()).find(R"({"event":")" + kind);
  }

  void damage(const std::function<void(std::string& text)>& change) const {
    std::string text = contents(log());
    change(text);
    write(log(), text);
  }

  [[nodiscard]] RunEnd resumed() const { return run_in(folder_.path(), 1, experiment_, "auto"); }

  // All lines can be read, and no step is there twice.
  void expect_log_in_order() const {
    EXPECT_THAT(events(folder_.path(), "start"), SizeIs(1));
    EXPECT_THAT(events(folder_.path(), "resume"), SizeIs(1));
    EXPECT_THAT(events(folder_.path(), "end"), SizeIs(1));
    std::set<std::int64_t> steps;
    for (const auto& event : events(folder_.path(), "step")) {
      EXPECT_TRUE(steps.insert(event["total_step"].get<std::int64_t>()).second) << event;
    }
    EXPECT_TRUE(steps.contains(12));
  }

  // As programs wrote it that knew no checksum of the log.
  void forget_checksum() const {
    const fs::path checkpoint = list_checkpoints(folder_.path()).front();
    Manifest manifest = read_manifest(checkpoint);
    ASSERT_NE(manifest.metrics_checksum, "");
    manifest.metrics_checksum.clear();
    write(checkpoint / "manifest.json", to_json(manifest));
  }

  ScratchFolder folder_;
  Experiment experiment_ = experiment_of("synchronous");
};

TEST_F(DamagedLogTest, ARunGoesOnWithAllLinesThatCanBeRead) {
  const RunEnd whole = run_in(ScratchFolder().path(), 1, experiment_);
  const std::string first = contents(log());
  const std::vector<std::pair<std::string, std::function<void(std::string&)>>> damages = {
      {"line 2 ", [&](std::string& text) { text.replace(place_of("step") + 5, 9, 9, '\0'); }},
      {"line 2 ", [&](std::string& text) { text[place_of("step")] = '\x7f'; }},
      {"line 2 ", [&](std::string& text) { text.insert(place_of("step") + 15, 300, '#'); }},
      {"line 2 ", [&](std::string& text) { text.erase(place_of("step") + 3, 40); }},
      {"line 1 ", [&](std::string& text) { text.replace(3, 64, 64, '\0'); }},
      {"line 1 ", [&](std::string& text) { text[place_of("step") - 1] = ' '; }},
  };
  for (const auto& [lines, change] : damages) {
    const ScratchFolder copy;
    fs::copy(folder_.path(), copy.path() / "run", fs::copy_options::recursive);
    damage(change);

    const RunEnd end = resumed();

    EXPECT_EQ(end.last.parameter_hash, whole.last.parameter_hash);
    EXPECT_THAT(end.notes, Contains(HasSubstr("metrics.jsonl is damaged: " + lines +
                                              "cannot be read, and was moved to " + log().string() +
                                              ".damaged")));
    EXPECT_NE(set_aside(), "");
    expect_log_in_order();
    EXPECT_THAT(events(folder_.path(), "epoch"), SizeIs(3));
    fs::remove_all(folder_.path());
    fs::copy(copy.path() / "run", folder_.path(), fs::copy_options::recursive);
  }
}

TEST_F(DamagedLogTest, NumbersThatHaveChangedAreTold) {
  damage([&](std::string& text) { text[text.find("\"loss\":", place_of("step")) + 9] ^= 1; });

  EXPECT_THAT(resumed().notes, Contains(HasSubstr("metrics.jsonl was changed since the checkpo")));
  EXPECT_EQ(set_aside(), "");
  expect_log_in_order();
}

TEST_F(DamagedLogTest, WhatWasSetAsideBeforeStays) {
  write(log().concat(".damaged"), "earlier\n");
  damage([&](std::string& text) { text[place_of("step")] = '#'; });

  static_cast<void>(resumed());

  EXPECT_THAT(set_aside(), testing::StartsWith("earlier\n#\"event\":\"step\""));
}

TEST_F(DamagedLogTest, ALogThatIsWholeIsNotTold) {
  for (const bool is_old : {false, true}) {
    if (is_old) forget_checksum();
    EXPECT_THAT(resumed().notes, Not(Contains(HasSubstr("metrics.jsonl"))));
    fs::remove_all(folder_.path());
    EXPECT_TRUE(run_in(folder_.path(), 1, experiment_, {}, 9).stopped);
  }
}

TEST_F(DamagedLogTest, OldCheckpointsKnowWhetherLinesCanBeRead) {
  forget_checksum();
  damage([&](std::string& text) { text.insert(place_of("step") + 15, 300, '#'); });

  EXPECT_THAT(resumed().notes, Contains(HasSubstr("metrics.jsonl is damaged: line 2 cannot")));
  expect_log_in_order();
}

TEST(SortedLogTest, EventsAreJudgedByTheirSteps) {
  const ScratchFolder folder;
  const std::string before = "{\"event\":\"start\"}\n{\"event\":\"step\",\"total_step\":4}\n";
  const std::string behind = "{\"event\":\"step\",\"total_step\":5}\n{\"event\":\"end\"}\n";
  const fs::path file = folder.write("metrics.jsonl", "a\n" + before + "[]\n" + behind + "b");

  const SortedLog sorted = sort_lines(file, {.bytes = 20, .step = 4});
  EXPECT_EQ(sorted.events, before);
  EXPECT_EQ(sorted.damaged, "a\n");
  EXPECT_THAT(sort_lines(file, {.bytes = 1000, .step = 4}).damaged_lines, ElementsAre(1, 4, 7));
}

TEST(SortedLogTest, FewLinesAreNamed) {
  EXPECT_EQ(text_of_lines({3}), "line 3");
  EXPECT_EQ(text_of_lines({1, 2, 3, 5, 8, 13, 21}), "lines 1, 2, 3, 5, 8 and 2 more");
}

}  // namespace
}  // namespace rondo::train::damaged_log_test
