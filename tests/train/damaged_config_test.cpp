// Configurations that are changed at random: always an Experiment or a ConfigError, never a crash.

#include <array>
#include <cstddef>
#include <random>
#include <string>
#include <string_view>

#include <gtest/gtest.h>

#include <rondo/train/experiment.hpp>

namespace rondo::train::damaged_config_test {
namespace {

constexpr std::string_view whole = R"(# an experiment
[data]
name = "synthetic"
shape = [28, 28, 1]
augment = ['crop:4', 'flip']
[model]
name = 'lenet5'
[[model.layers]]
kind = 'convolution'
filters = 8
bias = true
[train]
global_batch = 0x80
label_smoothing = 1e-1
[optimizer]
learning_rate = 0.1
momentum = 0.9
[transport]
wait = "auto"
)";

// Pieces that mean something in TOML, for mutations that get past the parser.
constexpr std::array<std::string_view, 24> pieces = {
    "[",   "]",   "[[", "]]", "=",   "\"", "'",    "\"\"\"",  "\n",    ".", ",",          "{",
    "inf", "nan", "-1", "0",  "1e9", "-0", "true", "\\u0000", "train", "#", "1979-05-27", "\xff"};

// `text` reads as an Experiment that reads back from what to_toml() writes, or is refused in one
// line that begins with the name.
void expect_answer(const std::string& text) {
  try {
    const Experiment experiment = parse_experiment(text, "exp.toml");
    const std::string written = to_toml(experiment);
    EXPECT_EQ(to_toml(parse_experiment(written, "again")), written);
  } catch (const ConfigError& error) {
    const std::string_view message = error.what();
    EXPECT_TRUE(message.starts_with("exp.toml:")) << message << "\nfor\n" << text;
    EXPECT_EQ(message.find('\n'), std::string::npos) << message;
  }
}

TEST(DamagedConfigTest, CutAnywhere) {
  for (std::size_t length = 0; length <= whole.size(); ++length) {
    expect_answer(std::string(whole.substr(0, length)));
    expect_answer(std::string(whole.substr(length)));
  }
}

TEST(DamagedConfigTest, ChangedAtRandom) {
  std::mt19937 random(1);

  for (int round = 0; round < 2000; ++round) {
    std::string text(whole);
    for (std::size_t edits = 1 + random() % 3; edits > 0; --edits) {
      const std::size_t place = random() % text.size();
      const std::size_t removed = random() % 4;
      text.replace(place, removed, pieces.at(random() % pieces.size()));
    }
    expect_answer(text);
  }
}

TEST(DamagedConfigTest, RandomBytes) {
  std::mt19937 random(2);

  for (int round = 0; round < 500; ++round) {
    std::string text(random() % 64, ' ');
    for (char& character : text) character = static_cast<char>(random() % 256);
    expect_answer(text);
  }
}

TEST(DamagedConfigTest, SettingsChangedAtRandom) {
  std::mt19937 random(3);

  for (int round = 0; round < 2000; ++round) {
    std::string setting = "train.epochs=3";
    const std::size_t place = random() % setting.size();
    setting.replace(place, random() % 4, pieces.at(random() % pieces.size()));
    try {
      static_cast<void>(parse_experiment(whole, "exp.toml", {setting}));
    } catch (const ConfigError& error) {
      EXPECT_TRUE(std::string_view(error.what()).starts_with("--set ")) << error.what();
    }
  }
}

}  // namespace
}  // namespace rondo::train::damaged_config_test
