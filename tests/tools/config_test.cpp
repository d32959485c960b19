// `rondo init` and `rondo config` as a program.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <regex>
#include <string>
#include <vector>

#include "support/program.hpp"
#include "support/scratch_folder.hpp"
#include "tools/runs.hpp"

namespace rondo::test::config_test {
namespace {

using testing::HasSubstr;

class ConfigTest : public testing::Test {
 protected:
  // Every key of a configuration with this text.
  [[nodiscard]] Ended config(const std::string& text, const Words& more = {}) {
    return rondo(joined({"config", scratch_.write("run.toml", text)}, more));
  }

  ScratchFolder scratch_;
};

TEST_F(ConfigTest, InitWritesEverySectionWithComments) {
  const Ended ended = rondo({"init", "resnet20"});

  EXPECT_EQ(ended.status, 0) << ended.err;
  for (const char* section :
       {"data", "model", "train", "optimizer", "update", "grid", "transport", "inject"}) {
    EXPECT_THAT(ended.out, HasSubstr("\n[" + std::string(section) + "]\n"));
  }
  EXPECT_THAT(ended.out, HasSubstr("\nname = \"resnet20\" "));
  EXPECT_THAT(ended.out, HasSubstr("\n# clip_norm = 0.0 "));
}

// A key behind a # has its default: without the # nothing changes.
TEST_F(ConfigTest, InitShowsTheDefaultsOfWhatItLeavesOut) {
  const std::string text = rondo({"init", "lenet5"}).out;
  const std::string uncommented = std::regex_replace(text, std::regex("\n# ([a-z_]+ = )"), "\n$1");

  const Ended as_it_is = config(text);
  const Ended with_all = config(uncommented);

  EXPECT_EQ(as_it_is.status, 0) << as_it_is.err;
  EXPECT_NE(text, uncommented);
  EXPECT_EQ(with_all.out, as_it_is.out) << with_all.err;
}

TEST_F(ConfigTest, WhatInitWritesRuns) {
  for (const char* model : {"lenet5", "resnet8"}) {
    const auto file = scratch_.write("run.toml", rondo({"init", model}).out);

    const Ended ended = rondo({"train", file, "--out", scratch_.path() / model, "-n", "2",
                               "--threads", "1", "--oversubscribe", "--set", "train.max_steps=2",
                               "--set", "data.training=256", "--set", "data.test=16"});

    EXPECT_EQ(ended.status, 0) << ended.err;
  }
}

TEST_F(ConfigTest, InitKnowsTheModels) {
  expect_refused(rondo({"init", "resnet21"}), 2, "resnet20");
}

TEST_F(ConfigTest, PrintsEveryKeyAndReadsItBack) {
  const std::string text = "[data]\nname = \"synthetic\"\n[model]\nname = \"lenet5\"\n";

  const Ended once = config(text, {"--set", "train.epochs=7"});
  const Ended twice = config(once.out);

  EXPECT_EQ(once.status, 0) << once.err;
  EXPECT_THAT(once.out, HasSubstr("\nepochs = 7\n"));
  EXPECT_THAT(once.out, HasSubstr("\nclip_norm = 0.0\n"));
  EXPECT_EQ(twice.out, once.out) << twice.err;
}

TEST_F(ConfigTest, RefusesAMistake) {
  expect_refused(config("[data]\nname = \"synthetic\"\n[model]\nnaem = \"lenet5\"\n"), 2,
                 "run.toml:4: unknown key 'model.naem'");
}

}  // namespace
}  // namespace rondo::test::config_test
