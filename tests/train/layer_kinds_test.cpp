// What the compiler cannot see of a new kind of layer: that the configuration can describe it, and
// that no source asks for single kinds, which would let a new one pass unseen.

#include <filesystem>
#include <fstream>
#include <iterator>
#include <regex>
#include <set>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <rondo/train/experiment.hpp>
#include <rondo/train/model.hpp>

#include "config/layer_list.hpp"
#include "layers/layer_type.hpp"
#include "model/described.hpp"
#include "support/sources.hpp"

namespace rondo::train::layer_kinds_test {
namespace {

using testing::IsEmpty;

/// A model whose first layer is of that kind.
Model model_with(const std::string& kind) {
  return make_described_model({.name = "custom",
                               .input = {8, 8, 2},
                               .classes = 3,
                               .layers = {{.kind = kind, .filters = 4, .outputs = 5},
                                          {.kind = "fully_connected", .outputs = 3}}});
}

TEST(LayerKindsTest, EveryKindCanBeDescribedInTheConfiguration) {
  std::set<std::string> described;
  for (const std::string& kind : layer_keys().front().limits.names) {
    described.insert(model_with(kind).layers.front().kind->text());
  }

  EXPECT_EQ(described.size(), described_kinds().size());
}

/// The single kinds that a text asks for, where all others would go the same way.
std::vector<std::string> single_kinds_in(const std::string& text) {
  static const std::regex question(R"(get_if<\w*Layer>|is_same_v<\w+, *\w*Layer>)");
  std::vector<std::string> found;
  for (std::sregex_iterator match(text.begin(), text.end(), question), end; match != end; ++match) {
    found.push_back(match->str());
  }
  return found;
}

TEST(LayerKindsTest, NoSourceAsksForASingleKind) {
  ASSERT_EQ(single_kinds_in("kind.get_if<BatchNormLayer>()").size(), 1U);
  int sources = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(
           std::filesystem::path(rondo::test::sources()) / "train" / "src")) {
    if (!entry.is_regular_file()) continue;
    std::ifstream file(entry.path());
    const std::string text{std::istreambuf_iterator<char>(file), {}};

    EXPECT_THAT(single_kinds_in(text), IsEmpty()) << entry.path();
    ++sources;
  }
  EXPECT_GT(sources, 50);
}

}  // namespace
}  // namespace rondo::train::layer_kinds_test
