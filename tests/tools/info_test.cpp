// `rondo info` as a program.

#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "support/program.hpp"
#include "support/scratch_folder.hpp"

namespace rondo::test::info_test {
namespace {

using testing::HasSubstr;

TEST(InfoTest, PrintsOneJsonObject) {
  const auto facts = nlohmann::json::parse(rondo({"info", "--format", "json"}).out);

  EXPECT_GE(facts["cores"], 1);
  EXPECT_GE(facts["default_ranks"], 1);
  EXPECT_GE(facts["default_threads"], 1);
  EXPECT_GT(facts["memory_bytes"], 0);
  EXPECT_EQ(facts["links"][0]["name"], "shm");
}

TEST(InfoTest, SeesOnlyTheCoresThatItMayUse) {
  // Asked apart: a failure of rondo itself must not pass for a machine without CPU 0.
  if (std::system("taskset -c 0 true 2>/dev/null") != 0) {
    GTEST_SKIP() << "taskset cannot choose CPU 0 here";
  }

  const Ended ended = rondo(
      {"run", "-n", "1", "--", "taskset", "-c", "0", rondo_path(), "info", "--format", "json"});

  ASSERT_EQ(ended.status, 0) << ended.err;
  EXPECT_EQ(nlohmann::json::parse(ended.out)["hardware_threads"], 1);
}

TEST(InfoTest, ListsEveryLinkWithWhatItHasOrLacks) {
  const auto facts = nlohmann::json::parse(rondo({"info", "--format", "json"}).out);

  std::vector<std::string> names;
  for (const auto& link : facts["links"]) {
    names.push_back(link["name"]);
    EXPECT_EQ(link["usable"], link["problem"] == "") << link;
    EXPECT_NE(link["usable"], link["facts"].empty()) << link;
  }
  EXPECT_THAT(names, testing::ElementsAre("shm", "ofi", "ucx"));
}

TEST(InfoTest, SaysWhyALinkCannotBeUsed) {
  const ScratchFolder folder;
  const std::string plugin = folder.write("librondo-link-ucx.so", "not a library").string();

  const Ended ended = rondo({"info"}, {{"RONDO_PLUGIN_PATH", folder.path().string()}});

  EXPECT_EQ(ended.status, 0);
  EXPECT_THAT(ended.out, testing::ContainsRegex("link ucx +cannot be used: .*" + plugin));
}

// Its number was that of NUMA domains, which may be a part of the machine's.
TEST(InfoTest, SaysWhichMemoryItMeans) {
  std::ifstream file("/proc/meminfo");
  std::string name;
  std::uint64_t kibibytes = 0;
  file >> name >> kibibytes;
  ASSERT_EQ(name, "MemTotal:");

  const auto facts = nlohmann::json::parse(rondo({"info", "--format", "json"}).out);
  const Ended ended = rondo({"info"});

  EXPECT_EQ(facts["memory_bytes"], kibibytes * 1024);
  EXPECT_GT(facts["numa_memory_bytes"], 0);
  EXPECT_THAT(ended.out, HasSubstr(std::to_string(kibibytes / 1024) +
                                   " MiB in the machine (the kernel's MemTotal), "));
  EXPECT_THAT(ended.out, HasSubstr(" in its NUMA domains (hwloc)"));
}

TEST(InfoTest, NamesTheKernelsInText) {
  const Ended ended = rondo({"info"});

  EXPECT_EQ(ended.status, 0);
  EXPECT_THAT(ended.out, HasSubstr("oneDNN"));
  EXPECT_THAT(ended.out, HasSubstr("NUMA"));
}

}  // namespace
}  // namespace rondo::test::info_test
