// The configuration: what a file gives, what every mistake is answered with, and what is written
// about it.

#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <map>
#include <random>
#include <set>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <rondo/train/experiment.hpp>

#include "support/error_text.hpp"
#include "support/scratch_folder.hpp"
#include "support/sources.hpp"

namespace rondo::train::experiment_test {
namespace {

using rondo::test::error_text;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

// The configuration: what a file gives, and what every mistake is answered with.

constexpr std::string_view names = "[data]\nname = 'synthetic'\n[model]\nname = 'lenet5'\n";

// The names, then `text`, whose first line is line 5.
Experiment parse(const std::string& text, const std::vector<std::string>& settings = {}) {
  return parse_experiment(std::string(names) + text, "exp.toml", settings);
}

std::string error(const std::string& text, const std::vector<std::string>& settings = {}) {
  return error_text<ConfigError>([&] { return parse(text, settings); });
}

TEST(ExperimentTest, ReadsEveryTypeOfValue) {
  const Experiment experiment = parse_experiment(
      "[data]\nname = 'synthetic'\npath = '/data/c'\nshape = [8, 9, 3]\ndrop_last = true\n"
      "[model]\nname = 'resnet20'\n[train]\nglobal_batch = 1_000\n[optimizer]\nlearning_rate = 1\n",
      "exp.toml");

  EXPECT_EQ(experiment.data.path, "/data/c");
  EXPECT_THAT(experiment.data.shape, ElementsAre(8, 9, 3));
  EXPECT_TRUE(experiment.data.drop_last);
  EXPECT_EQ(experiment.train.global_batch, 1000);
  EXPECT_EQ(experiment.optimizer.learning_rate, 1.0);
}

/// A file or a setting that is wrong, and a part of the answer to it.
struct Refusal {
  std::string input;
  std::string answer;
};

const Refusal wrong_files[] = {
    // The nearest key, section or choice.
    {"[train]\nepochs = 2\ngloabl_batch = 4\n",
     "exp.toml:7: unknown key 'train.gloabl_batch'; did you mean 'global_batch'?"},
    {"[train]\nlearning_rate = 2\n",
     "exp.toml:6: unknown key 'train.learning_rate'; did you mean 'optimizer.learning_rate'?"},
    {"[update]\nfrobnicate = 2\n", "exp.toml:6: unknown key 'update.frobnicate'; choose one of "},
    {"[trian]\nepochs = 2\n", "exp.toml:5: unknown section 'trian'; did you mean 'train'?"},
    {"[trian]\n", "did you mean 'train'?"},
    {"[transport]\nwait = 'sleeping'\n",
     "exp.toml:6: transport.wait: no such choice 'sleeping'; choose one of auto, "},
    {"[optimizer]\nschedule = 'cosin'\n", "did you mean 'cosine'?"},
    // The type that is expected and the one that was found.
    {"[train]\nepochs = 'three'\n",
     "exp.toml:6: train.epochs: expected an integer, found a string"},
    {"[train]\nepochs = 3.0\n", "expected an integer, found a number"},
    {"[optimizer]\nmomentum = true\n", "expected a number, found true or false"},
    {"[update]\nscheme = 7\n", "expected a string, found an integer"},
    {"[train.epochs]\nx = 1\n", "expected an integer, found a table"},
    {"[train]\nepochs = 1979-05-27\n", "found a date or time"},
    {"[train]\nepochs = [1]\n", "found an array"},
    // Ranges.
    {"[train]\nglobal_batch = 0\n",
     "exp.toml:6: train.global_batch: 0 is impossible; must lie in [1, 2147483647]"},
    {"[optimizer]\nlearning_rate = 0.0\n",
     "exp.toml:6: optimizer.learning_rate: 0 is impossible; must be greater than 0"},
    {"[optimizer]\nmomentum = 1.0\n", "must lie in [0, 1)"},
    {"[optimizer]\nmomentum = -0.1\n", "must lie in [0, 1)"},
    {"[optimizer]\nweight_decay = nan\n", "nan is impossible"},
    {"[optimizer]\nlearning_rate = inf\n", "inf is impossible"},
    {"[train]\nmax_steps = -1\n", "must be at least 0"},
    // Tables.
    {"[inject]\nslow_ranks = {a = 4.0}\n", "expected a table of integers and numbers, as in "},
    {"[inject]\nslow_ranks = {1 = 'x'}\n", "found a table"},
    {"[inject]\nslow_ranks = [1]\n", "found an array"},
    {"[inject]\nslow_ranks = {1 = 0.5}\n",
     "inject.slow_ranks: 1 = 0.5 is impossible; must lie in [1, 1000000]"},
    {"[inject]\nslow_ranks = {-1 = 2}\n", "the key -1 is impossible; must be at least 0"},
    {"[update]\nplugin_settings = { pull = 0.5 }\n", "update.plugin, which names no library"},
    // Splits of layers.
    {"[grid.layers]\n'fc*' = 'chanel=2'\n",
     "exp.toml:5: grid.layers: \"fc*\" = \"chanel=2\": unknown part 'chanel'; did you mean "},
    {"[grid.layers]\nfc = [3]\n", "exp.toml:5: grid.layers: expected a table of names and "},
    {"[grid.layers]\na = 'sample'\nb = [3]\n", "found a table"},
    {"[grid.layers]\nfc = 3\n", "\"fc\" = \"3\": '3' is no split"},
    // Each rank refused links and algorithms for itself, without saying where they stand.
    {"[transport]\nallreduce = \"bogus\"\n", "exp.toml:6: transport.allreduce: "},
    {"[transport]\nfabric = \"myrinet\"\n",
     "exp.toml:6: transport.fabric: 'myrinet' is none of auto, tcp"},
    // Syntax.
    {"[train]\nepochs = = 3\n", "exp.toml:6:10: not TOML: "},
    {"[train\n", "exp.toml:5:"},
    {"[train]\nepochs = 1\nepochs = 2\n", "exp.toml:7:"},
    {"\xff\xfe", "not TOML"},
};

TEST(ExperimentTest, SaysWhereAFileIsWrong) {
  for (const auto& [text, answer] : wrong_files) {
    EXPECT_THAT(error(text), HasSubstr(answer)) << text;
  }
}

TEST(ExperimentTest, SaysWhatAFileWithoutSectionsOrNamesLacks) {
  const Refusal refusals[] = {
      {"epochs = 3", "e:1: unknown key 'epochs'; did you mean 'train.epochs'?"},
      {"x = 3", "e:1: unknown key 'x'; keys stand in sections like [train]"},
      {"train = 3", "train: expected a table, found an integer"},
      {"[[train]]\nepochs=1", "train: expected a table, found an array"},
      {"[data]\nshape=[3, 4]", "e:2: data.shape: has 2 numbers; must have 3, or none"},
      {"[data]\nshape=[3, 0, 1]", "data.shape: 0 is impossible"},
      {"[data]\nshape=[3, 'x', 1]", "data.shape: expected an array of integers, found an array"},
      {"", "e: missing key 'data.name'; set it to one of fashion-mnist, "},
      {"[data]\nname='cifar10'", "missing key 'model.name'"},
  };
  for (const auto& [text, answer] : refusals) {
    EXPECT_THAT(error_text<ConfigError>([&] { return parse_experiment(text, "e"); }),
                HasSubstr(answer))
        << text;
  }
}

TEST(ExperimentTest, QuotesASettingThatIsWrong) {
  const Refusal refusals[] = {
      {"train.gloabl_batch=3", "--set train.gloabl_batch=3: unknown key 'train.gloabl_batch'"},
      {"train.epochs=three", "--set train.epochs=three: train.epochs: expected an integer"},
      {"train.epochs=0", "--set train.epochs=0: train.epochs: 0 is"},
      {"trian.epochs=0", "unknown section 'trian'"},
      {"train.epochs=[1", "close its quotes or brackets"},
      {"train.epochs=", "found a string"},
      {"train.epochs=99999999999999999999", "which is too large or too small"},
      {"train.epochs=1\n[data]\ndrop_last=true", "found a string"},
      {"optimizer.learning_rate=1e400", "found '1e400', which is too large or too small"},
      {"optimizer.learning_rate=.1", "found '.1', which is no number in TOML; write it as in"},
      {"optimizer.learning_rate=inf", "inf is impossible; must be finite"},
      {"data.path=\xff", "is not UTF-8"},
      {"update.levels={8=2.5}", "update.levels: 8 = 2.5 is impossible; must be an integer"},
      {"grid.layers={a='rows'}", "'rows' is no split; write"},
      {"grid.channel=0", "0 is impossible"},
      {"grid.plan=autos", "did you mean 'auto'?"},
      {"model.name=lenet", "did you mean 'lenet5'?"},
      {"", "write --set SECTION.KEY=VALUE"},
      {"=", "write --set SECTION.KEY=VALUE"},
      {"epochs=3", "write --set SECTION.KEY=VALUE"},
      {"train.epochs", "write --set SECTION.KEY=VALUE"},
      {"train=3", "write --set SECTION.KEY=VALUE"},
  };
  for (const auto& [setting, answer] : refusals) {
    EXPECT_THAT(error("", {setting}), HasSubstr(answer)) << setting;
  }
}

TEST(ExperimentTest, ReadsListsOfStrings) {
  const std::string text = "[data]\nname=\"synthetic\"\n[model]\nname=\"lenet5\"\nweights=\"f\"\n";
  const auto skip_of = [&](const std::string& value) {
    const Experiment experiment = parse_experiment(text, "e", {"model.skip=" + value});
    EXPECT_EQ(to_toml(parse_experiment(to_toml(experiment), "again")), to_toml(experiment));
    return experiment.model.skip;
  };
  const auto refused = [&](const std::string& value) {
    return error_text<ConfigError>([&] { return skip_of(value); });
  };

  EXPECT_THAT(skip_of("['fc.*', 'a \"b']"), testing::ElementsAre("fc.*", "a \"b"));
  EXPECT_THAT(skip_of("[]"), testing::IsEmpty());
  EXPECT_THAT(refused("['fc.*', 3]"), HasSubstr("expected an array of strings, found an array"));
  EXPECT_THAT(refused("[3]"), HasSubstr("expected an array of strings, found an array"));
  EXPECT_THAT(refused("fc"), HasSubstr("expected an array of strings, found a string"));
  EXPECT_THAT(
      error_text<ConfigError>(
          [&] { return parse_experiment(text, "e", {"model.weights=", "model.skip=['fc.*']"}); }),
      HasSubstr("model.skip: leaves out what model.weights would set, which names no file"));
}

// Numbers in a table of texts need no quotes.
TEST(ExperimentTest, ReadsTables) {
  const std::map<std::int64_t, double> slow{{0, 1.5}, {3, 4.0}};
  EXPECT_EQ(parse("[inject]\nslow_ranks = {3 = 4, 0 = 1.5}\n").inject.slow_ranks, slow);
  EXPECT_EQ(parse("[inject.slow_ranks]\n3 = 4.0\n0 = 1.5\n").inject.slow_ranks, slow);
  EXPECT_EQ(parse("", {"inject.slow_ranks={3=4.0, 0=1.5}"}).inject.slow_ranks, slow);
  EXPECT_THAT(parse("", {"inject.slow_ranks={}"}).inject.slow_ranks, IsEmpty());
  EXPECT_THAT(parse("[grid]\nlayers = {}\n").grid.layers, IsEmpty());
  EXPECT_THAT(parse("[update]\nplugin = 'mine.so'\n"
                    "plugin_settings = { pull = 0.5, period = 8, kind = 'linear' }\n")
                  .update.plugin_settings,
              ElementsAre(testing::Pair("pull", "0.5"), testing::Pair("period", "8"),
                          testing::Pair("kind", "linear")));
}

TEST(ExperimentTest, SettingsOverrideTheFile) {
  const Experiment experiment = parse(
      "[train]\nepochs = 2\n", {"train.epochs=5", "data.drop_last = true", "optimizer.momentum=0",
                                "data.name=synthetic", "data.shape=[1, 2, 3]"});

  EXPECT_EQ(experiment.train.epochs, 5);
  EXPECT_TRUE(experiment.data.drop_last);
  EXPECT_EQ(experiment.optimizer.momentum, 0.0);
  EXPECT_EQ(experiment.data.name, "synthetic");
  EXPECT_THAT(experiment.data.shape, ElementsAre(1, 2, 3));
  EXPECT_EQ(parse_experiment("", "e", {"data.name=synthetic", "model.name=\"lenet5\""}).model.name,
            "lenet5");
}

TEST(ExperimentTest, AStringSettingNeedsNoQuotes) {
  for (const char* path : {"/tmp/a b", "2024", "inf", "true", "a=b", "#1", "a\"b", "C:\\x", ""}) {
    EXPECT_EQ(parse("", {std::string("data.path=") + path}).data.path, path);
  }
  EXPECT_EQ(parse("", {"data.path='with # quotes'"}).data.path, "with # quotes");
}

TEST(ExperimentTest, FilesThatCannotBeRead) {
  const rondo::test::ScratchFolder folder;
  const auto read = [&](const char* name) {
    return error_text<ConfigError>([&] { return read_experiment(folder.path() / name); });
  };
  EXPECT_THAT(read("none.toml"), HasSubstr("none.toml: the configuration cannot be read (No such "
                                           "file or directory)"));
  EXPECT_THAT(read(""), HasSubstr("is a folder; give a configuration file"));
}

TEST(ExperimentTest, ReadsBackWhatItWrote) {
  const Experiment experiment = parse(
      "[train]\nseed = 9223372036854775807\n[optimizer]\nlearning_rate = 1e-300\n"
      "weight_decay = 0.1000000000000000055\nfinal_learning_rate = 12345678901234567890.0\n"
      "[update]\nscheme = 'hierarchical'\nperiod = 32\nlevels = {16 = 8}\n"
      "[inject]\nslow_ranks = {1 = 2.5}\n",
      {"data.path=a \"b\" \\ \xc3\xa4 #\t\x7f", "data.shape=[1,2,3]"});

  const std::string text = to_toml(experiment);
  const Experiment again = parse_experiment(text, "again");

  EXPECT_EQ(to_toml(again), text);
  EXPECT_EQ(again.data.path, experiment.data.path);
  EXPECT_EQ(again.train.seed, experiment.train.seed);
  EXPECT_EQ(again.optimizer.learning_rate, experiment.optimizer.learning_rate);
  EXPECT_EQ(again.optimizer.weight_decay, experiment.optimizer.weight_decay);
  EXPECT_EQ(again.optimizer.final_learning_rate, experiment.optimizer.final_learning_rate);
  EXPECT_EQ(again.update.levels, experiment.update.levels);
  EXPECT_EQ(again.inject.slow_ranks, experiment.inject.slow_ranks);
}

// Configurations that are changed at random: always an Experiment or a ConfigError, never a crash.

constexpr std::string_view whole = R"(# an experiment
[data]
name = "synthetic"
shape = [28, 28, 1]
augment = ['crop:4', 'flip']
[model]
name = 'custom'
input = [28, 28, 1]
classes = 10
[[model.layers]]
kind = 'convolution'
filters = 8
bias = true
[[model.layers]]
kind = 'fully_connected'
outputs = 10
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

TEST(DamagedConfigTest, IsReadOrRefusedWhereverItIsCut) {
  for (std::size_t length = 0; length <= whole.size(); ++length) {
    expect_answer(std::string(whole.substr(0, length)));
    expect_answer(std::string(whole.substr(length)));
  }
}

TEST(DamagedConfigTest, IsReadOrRefusedAfterRandomChanges) {
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

TEST(DamagedConfigTest, RandomBytesAreReadOrRefused) {
  std::mt19937 random(2);
  for (int round = 0; round < 500; ++round) {
    std::string text(random() % 64, ' ');
    for (char& character : text) character = static_cast<char>(random() % 256);
    expect_answer(text);
  }
}

TEST(DamagedConfigTest, ARandomSettingIsReadOrRefused) {
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

// What is written about the configuration holds: the examples are read, and docs/configuration.md
// names every key with its default, and every key of a layer with the kinds that have it.

using Defaults = std::map<std::string, std::string>;

const std::filesystem::path sources = rondo::test::sources();

// Key and default of the rows "| section.key | default | ...".
Defaults documented_defaults() {
  Defaults defaults;
  std::ifstream page(sources / "docs" / "configuration.md");
  for (std::string line; std::getline(page, line);) {
    std::istringstream row(line);
    std::string bar;
    std::string key;
    std::string second_bar;
    if (!(row >> bar >> key >> second_bar) || bar != "|" || second_bar != "|") continue;
    if (key.find('.') == std::string::npos) continue;
    std::string value;
    std::getline(row >> std::ws, value, '|');
    defaults[key] = value.substr(0, value.find_last_not_of(' ') + 1);
  }
  return defaults;
}

Defaults true_defaults() {
  Defaults defaults;
  std::istringstream text(to_toml(Experiment{}));
  std::string section;
  for (std::string line; std::getline(text, line);) {
    if (line.starts_with('[')) section = line.substr(1, line.size() - 2);
    const std::size_t equals = line.find(" = ");
    if (equals == std::string::npos) continue;
    defaults[section + "." + line.substr(0, equals)] = line.substr(equals + 3);
  }
  defaults["data.name"] = "required";
  defaults["model.name"] = "required";
  return defaults;
}

using Kinds = std::map<std::string, std::set<std::string>>;  // by key: the kinds that have it

const std::set<std::string> all_kinds = {"convolution",
                                         "batch_norm",
                                         "max_pooling",
                                         "average_pooling",
                                         "fully_connected",
                                         "global_average_pooling",
                                         "add",
                                         "concat",
                                         "dropout",
                                         "activation"};

std::set<std::string> list_in(const std::string& text) {
  std::set<std::string> items;
  std::istringstream stream(text);
  for (std::string item; std::getline(stream >> std::ws, item, ',');) items.insert(item);
  return items;
}

// The rows "| key | kinds | default | ..." under the heading of custom models.
Kinds documented_layer_keys() {
  Kinds keys;
  bool here = false;
  std::ifstream page(sources / "docs" / "configuration.md");
  for (std::string line; std::getline(page, line);) {
    if (line.starts_with("## ")) here = line == "## A model that is described layer by layer";
    if (!here || !line.starts_with("| ") || line.starts_with("| key |")) continue;
    const std::size_t bar = line.find(" | ");
    const std::size_t next = line.find(" | ", bar + 3);
    std::set<std::string> kinds = list_in(line.substr(bar + 3, next - bar - 3));
    if (kinds.erase("all") > 0) kinds = all_kinds;
    if (kinds.erase("poolings") > 0)
      kinds.merge(std::set<std::string>{"max_pooling", "average_pooling"});
    keys[line.substr(2, bar - 2)] = kinds;
  }
  return keys;
}

// An unknown key is answered with those that the layer's kind has.
Kinds true_layer_keys() {
  Kinds keys;
  for (const std::string& kind : all_kinds) {
    try {
      (void)parse_experiment("[[model.layers]]\nkind = \"" + kind + "\"\nqqqqqqqqqqqq = 1\n", "it");
    } catch (const ConfigError& error) {
      const std::string text = error.what();
      const std::string before = "choose one of ";
      for (const std::string& key : list_in(text.substr(text.find(before) + before.size())))
        keys[key].insert(kind);
    }
  }
  return keys;
}

TEST(ConfigurationDocsTest, ThePageNamesEveryKeyOfALayerWithItsKinds) {
  EXPECT_THAT(documented_layer_keys(), testing::ContainerEq(true_layer_keys()));
}

TEST(ConfigurationDocsTest, ThePageNamesEveryKeyWithItsDefault) {
  EXPECT_THAT(documented_defaults(), testing::ContainerEq(true_defaults()));
}

TEST(ConfigurationDocsTest, TheExamplesAreReadAndReadBack) {
  int count = 0;
  for (const auto& entry : std::filesystem::directory_iterator(sources / "examples")) {
    if (entry.path().extension() != ".toml") continue;
    SCOPED_TRACE(entry.path());
    const std::string text = to_toml(read_experiment(entry.path()));

    EXPECT_EQ(to_toml(parse_experiment(text, "again")), text);
    ++count;
  }
  EXPECT_GE(count, 3);
}

}  // namespace
}  // namespace rondo::train::experiment_test
