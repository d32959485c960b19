// What is written about the configuration holds: the examples are read, and docs/configuration.md
// names every key with its default.

#include <filesystem>
#include <fstream>
#include <map>
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
