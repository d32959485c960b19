// Tables: their three forms, and replacing the file that holds one.

#include "table.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "failure.hpp"
#include "files.hpp"
#include "support/scratch_folder.hpp"

namespace rondo::tools::table_test {
namespace {

struct Row {
  std::string name;
  double seconds = 0.0;
  std::optional<std::int64_t> count = {};
  std::string note = {};
};

Table table_of(const std::vector<Row>& rows) {
  return TableOf(rows)
      .add({"name", "who", Align::left}, &Row::name)
      .add({.name = "seconds", .heading = "ms", .decimals = 1, .scale = 1e3}, &Row::seconds)
      .add({"count", "count"}, &Row::count)
      .add({.heading = "note", .align = Align::left}, &Row::note);
}

const std::vector<Row> two_rows = {{"a", 0.25, 12}, {"long", 0.0625, {}, "so \"it\", is"}};

TEST(TableTest, AlignsTextAndScalesNumbers) {
  EXPECT_EQ(table_of(two_rows).text("> "),
            "> who      ms  count  note\n"
            "> a     250.0     12\n"
            "> long   62.5      -  so \"it\", is\n");
}

TEST(TableTest, LeavesOutATextColumnInWhichNothingStands) {
  EXPECT_EQ(table_of({{"a", 0.25, 12}}).in(Format::text),
            "who     ms  count\n"
            "a    250.0     12\n");
}

TEST(TableTest, WritesNumbersAsTheyAreAndNothingForNothingAsCsv) {
  EXPECT_EQ(table_of(two_rows).in(Format::csv), "name,seconds,count\na,0.25,12\nlong,0.0625,\n");
  EXPECT_EQ(table_of({}).csv(), "name,seconds,count\n");
}

TEST(TableTest, QuotesWhatWouldBreakALineOfCsv) {
  const std::vector<Row> rows = {{"a,b"}, {"say \"x\""}, {"two\nlines"}, {"plain text"}};
  EXPECT_EQ(TableOf(rows).add({.name = "the, name"}, &Row::name).csv(),
            "\"the, name\"\n\"a,b\"\n\"say \"\"x\"\"\"\n\"two\nlines\"\nplain text\n");
}

TEST(TableTest, WritesAnObjectForEachRowInOrder) {
  const auto rows = nlohmann::ordered_json::parse(table_of(two_rows).in(Format::json));
  EXPECT_EQ(rows.dump(), R"([{"name":"a","seconds":0.25,"count":12},)"
                         R"({"name":"long","seconds":0.0625,"count":null}])");
  EXPECT_EQ(table_of({}).json(), "[]\n");
}

TEST(TableTest, HoldsATableInJsonOnly) {
  const std::vector<Row> outer = {{"a"}};
  TableOf table(outer);
  table.add({"name", "name"}, &Row::name);
  table.add({.name = "rows"}, [](const Row&) { return table_of(two_rows); });
  EXPECT_EQ(nlohmann::json::parse(table.json_object())["rows"][1]["name"], "long");
  EXPECT_EQ(table.text(), "name\n   a\n");
}

TEST(TableFileTest, ReplacesAFileAndLeavesNothingAside) {
  const rondo::test::ScratchFolder folder;
  const auto file = folder.write("compare.csv", "old");
  replace_file(file, "new", "choose another");
  EXPECT_EQ(read_file(file), "new");
  EXPECT_FALSE(std::filesystem::exists(folder.path() / "compare.csv.part"));
}

TEST(TableFileTest, SaysWhichFileItCannotWrite) {
  EXPECT_THROW(replace_file("/no/such/folder/compare.csv", "new", "choose another"), UsageError);
}

TEST(CountedTest, HasAnSUnlessThereIsOne) {
  EXPECT_EQ(counted(0, "rank"), "0 ranks");
  EXPECT_EQ(counted(1, "rank"), "1 rank");
  EXPECT_EQ(counted(2, "rank"), "2 ranks");
}

}  // namespace
}  // namespace rondo::tools::table_test
