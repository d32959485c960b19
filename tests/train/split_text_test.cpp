// How the split of a layer is written.

#include "config/grid_choice.hpp"

#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace rondo::train::split_text_test {
namespace {

using testing::HasSubstr;
using testing::StrEq;

TEST(SplitTextTest, ReadsEveryKind) {
  EXPECT_EQ(read_split("sample"), (LayerSplit{.kind = SplitKind::sample}));
  EXPECT_EQ(read_split(" group "), (LayerSplit{.kind = SplitKind::group}));
  EXPECT_EQ(read_split("height=2 width=3"), (LayerSplit{.kind = SplitKind::space, .h = 2, .w = 3}));
  EXPECT_EQ(read_split("filter=4  channel=2"),
            (LayerSplit{.kind = SplitKind::channel, .channels = {2, 4}}));
}

TEST(SplitTextTest, APartThatIsNotSaidIsOne) {
  EXPECT_EQ(read_split("width=3"), (LayerSplit{.kind = SplitKind::space, .w = 3}));
  EXPECT_EQ(read_split("filter=3"), (LayerSplit{.kind = SplitKind::channel, .channels = {1, 3}}));
}

TEST(SplitTextTest, ReadsWhatItWrites) {
  for (const char* text : {"sample", "group", "height=2 width=1", "channel=3 filter=5"}) {
    EXPECT_EQ(to_text(read_split(text)), text);
  }
}

TEST(SplitTextTest, SaysWhatIsWrong) {
  const std::string forms = "write sample, group, \"height=A width=B\" or \"channel=A filter=B\"";
  EXPECT_THAT(complaint_about_split(" "), StrEq("is empty; " + forms));
  EXPECT_THAT(complaint_about_split("samples"), StrEq("'samples' is no split; " + forms));
  EXPECT_THAT(complaint_about_split("sample group"), StrEq("'sample' is no split; " + forms));
  EXPECT_THAT(complaint_about_split("rows=2"),
              StrEq("unknown part 'rows'; choose one of height, width, channel, filter"));
  EXPECT_THAT(complaint_about_split("height=2 height=2"), StrEq("gives 'height' twice"));
  EXPECT_THAT(complaint_about_split("height=2 filter=2"), HasSubstr("channels at once"));
  for (const char* text : {"width=", "width=0", "width=-1", "width=2x", "width=99999999999"}) {
    EXPECT_THAT(complaint_about_split(text), HasSubstr("a number of parts from 1 to 4096"));
  }
}

}  // namespace
}  // namespace rondo::train::split_text_test
