// What `rondo compare` reads from --schemes.

#include "compare/plan.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "failure.hpp"

namespace rondo::tools::compare_items_test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::vector<std::string> labels(const std::vector<std::string>& lists) {
  std::vector<std::string> labels;
  for (const SchemeItem& item : parse_scheme_items(lists)) labels.push_back(item.label);
  return labels;
}

// What is wrong with `item`; empty when nothing is.
std::string complaint(const std::string& item) {
  try {
    static_cast<void>(parse_scheme_items({item}));
    return {};
  } catch (const UsageError& error) {
    return error.what();
  }
}

TEST(SchemeItemTest, MakesSettingsOfUpdateOfBareKeys) {
  const SchemeItem item = parse_scheme_item("k_step:period=16:reduction_momentum=0.5");

  EXPECT_THAT(item.settings, ElementsAre("update.scheme=k_step", "update.period=16",
                                         "update.reduction_momentum=0.5"));
}

TEST(SchemeItemTest, LeavesKeysWithASectionAlone) {
  const SchemeItem item = parse_scheme_item("lazy:optimizer.learning_rate=0.05");

  EXPECT_THAT(item.settings, ElementsAre("update.scheme=lazy", "optimizer.learning_rate=0.05"));
}

TEST(SchemeItemTest, TakesTheNameAloneAsAnItem) {
  const SchemeItem item = parse_scheme_item("synchronous");

  EXPECT_EQ(item.label, "synchronous");
  EXPECT_THAT(item.settings, ElementsAre("update.scheme=synchronous"));
}

TEST(SchemeItemTest, IgnoresBlanksAroundParts) {
  const SchemeItem item = parse_scheme_item("lazy : max_interval = 4");

  EXPECT_THAT(item.settings, ElementsAre("update.scheme=lazy", "update.max_interval=4"));
}

TEST(SchemeItemTest, MakesALabelThatIsAFolderName) {
  EXPECT_EQ(parse_scheme_item("k_step:period=16").label, "k_step-period=16");
  EXPECT_EQ(parse_scheme_item("lazy:data.path='/a b'").label, "lazy-data.path=__a_b_");
}

TEST(SchemeItemTest, KeepsColonsAndCommasInQuotesAndBracketsTogether) {
  const auto items =
      parse_scheme_items({"lazy:transport.fabric='ucx:tcp,sm',k_step:data.shape=[8,8,1]"});

  ASSERT_EQ(items.size(), 2U);
  EXPECT_THAT(items[0].settings,
              ElementsAre("update.scheme=lazy", "transport.fabric='ucx:tcp,sm'"));
  EXPECT_THAT(items[1].settings, ElementsAre("update.scheme=k_step", "data.shape=[8,8,1]"));
}

TEST(SchemeItemTest, JoinsSeveralLists) {
  EXPECT_THAT(labels({"a,b:x=1", " c "}), ElementsAre("a", "b-x=1", "c"));
}

struct Mistake {
  const char* items;
  const char* said;
};

class SchemeMistakeTest : public testing::TestWithParam<Mistake> {};

TEST_P(SchemeMistakeTest, IsRefused) {
  EXPECT_THAT(complaint(GetParam().items), HasSubstr(GetParam().said));
}

INSTANTIATE_TEST_SUITE_P(
    , SchemeMistakeTest,
    testing::Values(Mistake{"period=16", "'period=16': begins with no scheme's name"},
                    Mistake{":period=16", "begins with no scheme's name"},
                    Mistake{"k_step:period", "'period' is no setting"},
                    Mistake{"k_step:=16", "'=16' is no setting"},
                    Mistake{"k_step:", "'' is no setting"},
                    Mistake{"synchronous,", "an item is empty"}, Mistake{"", "an item is empty"},
                    Mistake{"lazy:train.seed=3", "--seed-list"},
                    Mistake{"lazy,lazy", "would share the folder lazy"},
                    Mistake{"lazy:x='a b',lazy:x='a/b'", "would share the folder lazy-x=_a_b_"}));

}  // namespace
}  // namespace rondo::tools::compare_items_test
