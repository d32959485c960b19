// What `rondo compare` reads from --schemes.

#include "compare/scheme_item.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "exit_status.hpp"

namespace rondo::tools::scheme_item_test {
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

TEST(SchemeItemTest, RefusesAnItemWithoutAName) {
  EXPECT_THAT(complaint("period=16"), HasSubstr("'period=16': begins with no scheme's name"));
  EXPECT_THAT(complaint(":period=16"), HasSubstr("begins with no scheme's name"));
}

TEST(SchemeItemTest, RefusesAPartThatIsNoSetting) {
  EXPECT_THAT(complaint("k_step:period"), HasSubstr("'period' is no setting"));
  EXPECT_THAT(complaint("k_step:=16"), HasSubstr("'=16' is no setting"));
  EXPECT_THAT(complaint("k_step:"), HasSubstr("'' is no setting"));
}

TEST(SchemeItemTest, RefusesAnEmptyItem) {
  EXPECT_THAT(complaint("synchronous,"), HasSubstr("an item is empty"));
  EXPECT_THAT(complaint(""), HasSubstr("an item is empty"));
}

TEST(SchemeItemTest, RefusesToChooseTheSeed) {
  EXPECT_THAT(complaint("lazy:train.seed=3"), HasSubstr("--seed-list"));
}

TEST(SchemeItemTest, RefusesTwoItemsWithOneFolder) {
  EXPECT_THAT(complaint("lazy,lazy"), HasSubstr("would share the folder lazy"));
  EXPECT_THAT(complaint("lazy:x='a b',lazy:x='a/b'"),
              HasSubstr("would share the folder lazy-x=_a_b_"));
}

}  // namespace
}  // namespace rondo::tools::scheme_item_test
