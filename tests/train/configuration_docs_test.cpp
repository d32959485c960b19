// What is written about the configuration holds: the examples are read, and docs/configuration.md
// names every key with its default, and every key of a layer with the kinds that have it.

#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <sstream>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <rondo/train/experiment.hpp>

#include "support/sources.hpp"

namespace rondo::train::configuration_docs_test {
namespace {

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

const std::set<std::string> all_kinds = {"convolution",     "batch_norm",
                                         "max_pooling",     "average_pooling",
                                         "fully_connected", "global_average_pooling"};

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
}  // namespace rondo::train::configuration_docs_test
