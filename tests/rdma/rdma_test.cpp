// The ways over RDMA verbs, between two virtual machines with soft-RoCE. One boot for each way runs
// all of its checks (see `job`); the cases look at what that has left.

#include <array>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <regex>
#include <sstream>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace rondo::test {
namespace {

using testing::HasSubstr;

/// Emulated machines run at a crawl, and a fault is made only after its time was written down.
constexpr double emulation_seconds = 1.0;

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

/// The output of a command on both streams, and its status.
struct Said {
  int status = 0;
  std::string text = {};
};

Said run(const std::string& command) {
  FILE* pipe = popen((command + " 2>&1").c_str(), "r");
  if (pipe == nullptr) return {1, "no shell"};
  Said said;
  std::array<char, 256> part{};
  while (std::fgets(part.data(), part.size(), pipe) != nullptr) said.text += part.data();
  said.status = pclose(pipe);
  return said;
}

/// Why there can be no machines here; empty when there can. Fetches what they boot from.
const std::string& obstacle() {
  static const std::string reason = [] {
    if (run("command -v qemu-system-x86_64").status != 0) {
      return std::string("there is no qemu-system-x86_64");
    }
    const Said said = run("python3 " + variable("RONDO_RDMA_SOURCE") + "/make_guest.py " +
                          variable("RONDO_RDMA_BUILD") + "/guest");
    return said.status == 0 ? std::string() : "no kernel to boot: " + said.text;
  }();
  return reason;
}

/// What is in file `name` of `folder`, without the newline at its end.
std::string read_file(const std::string& folder, const std::string& name) {
  std::ifstream stream(folder + '/' + name);
  std::string text((std::istreambuf_iterator<char>(stream)), {});
  while (!text.empty() && text.back() == '\n') text.pop_back();
  return text;
}

/// Boots both machines, which do `job` with `settings` (NAME=VALUE...), once; where they leave what
/// they say.
std::string folder_after(const std::string& name, const std::string& job,
                         const std::string& settings) {
  static std::map<std::string, Said> booted;
  const std::string build = variable("RONDO_RDMA_BUILD");
  const std::string source = variable("RONDO_RDMA_SOURCE");
  std::string folder = build + '/' + name;
  if (booted.contains(name)) return folder;
  booted[name] = run("timeout 400 " + source + "/machines " + build + "/guest " + folder + ' ' +
                     source + '/' + job + ' ' + settings + " rank=" + variable("RONDO_TEST_RANK"));
  return folder;
}

/// One of the ways, the name of its cases, and how its link is cut (see `job`).
struct Way {
  const char* name;
  const char* fabric;
  const char* cut;
};

class RdmaTest : public testing::TestWithParam<Way> {
 protected:
  void SetUp() override {
    if (!obstacle().empty()) GTEST_SKIP() << "left out: " << obstacle();
    const Way& way = GetParam();
    folder_ =
        folder_after(way.name, "job", std::string("fabric=") + way.fabric + " cut=" + way.cut);
  }

  /// What is in file `name` of the machines' folder.
  [[nodiscard]] std::string read(const std::string& name) const { return read_file(folder_, name); }

  void expect_success(const std::string& check) const {
    EXPECT_EQ(read(check + ".status"), "0") << read(check);
  }

  /// Machine `id` has named rank `lost` and its host within `seconds`.
  void expect_report(const std::string& fault, int id, double seconds) const {
    const int lost = 1 - id;
    const std::string name = fault + '.' + std::to_string(id);
    const std::string text = read(name);
    EXPECT_THAT(
        text, HasSubstr("rank=" + std::to_string(lost) + " host=vm" + std::to_string(lost) + ":"));
    std::smatch at;
    ASSERT_TRUE(std::regex_search(text, at, std::regex("failed at=([0-9.]+)"))) << text;
    // The machines' clocks are not the same; only machine 0 has written down when it began.
    if (id != 0) return;
    const std::string began = read(fault + ".began");
    ASSERT_FALSE(began.empty());
    EXPECT_GE(std::stod(at[1]), std::stod(began)) << text;
    EXPECT_LE(std::stod(at[1]), std::stod(began) + seconds + emulation_seconds) << text;
  }

 private:
  std::string folder_;
};

TEST_P(RdmaTest, GivesExactResults) {
  for (const char* id : {"0", "1"}) {
    const std::string check = std::string("collectives.") + id;
    expect_success(check);
    EXPECT_THAT(read(check), HasSubstr(" 0 wrong"));
  }
}

TEST_P(RdmaTest, TrainsAsSharedMemoryDoes) {
  for (const char* check : {"train.0", "train.1", "compare.0"}) expect_success(check);
}

TEST_P(RdmaTest, NamesAKilledRankWithinASecond) { expect_report("killed-rank", 0, 1.0); }

TEST_P(RdmaTest, NamesTheOtherSideOfACutLinkWithinFiveSeconds) {
  expect_report("cut-link", 0, 5.0);
  expect_report("cut-link", 1, 5.0);
}

TEST_P(RdmaTest, NamesAKilledMachineWithinFiveSeconds) { expect_report("killed-machine", 0, 5.0); }

std::string name_of(const testing::TestParamInfo<Way>& info) { return info.param.name; }

// UCX 1.13 aborts the process when it cannot send datagrams because the interface is down: their
// link is cut at the cable, where everything just gets lost.
INSTANTIATE_TEST_SUITE_P(All, RdmaTest,
                         testing::Values(Way{"UcxRc", "ucx:rc_v,self", "down"},
                                         Way{"UcxUd", "ucx:ud_v,self", "unplug"},
                                         Way{"OfiVerbs", "ofi:verbs", "down"}),
                         name_of);

/// Two networks, both or one of them with RDMA; the ranks meet over the first.
class RdmaChoiceTest : public testing::Test {
 protected:
  void SetUp() override {
    if (!obstacle().empty()) GTEST_SKIP() << "left out: " << obstacle();
    folder_ = folder_after("Choice", "choice", "");
  }

  [[nodiscard]] std::string read(const std::string& name) const { return read_file(folder_, name); }

  /// Both ranks got exact results, and their routes have all of `parts`.
  void expect_route(const std::string& check, const std::vector<std::string>& parts) const {
    for (const char* id : {"0", "1"}) {
      const std::string name = check + '.' + id;
      EXPECT_EQ(read(name + ".status"), "0");
      for (const std::string& part : parts) EXPECT_THAT(read(name), HasSubstr(part));
    }
  }

 private:
  std::string folder_;
};

// Whether two rails are then faster is for the machine to say: emulated processors may be slower
// than both wires. eth1 carries the trial of its own network, and half of the trial of both.
TEST_F(RdmaChoiceTest, TriesTwoRdmaNetworksAsRails) {
  expect_route("two-rails", {"by ucx: verbs over rxe0:1", "rxe0:1,rxe1:1", " 0 wrong"});
  constexpr long trial = 5 * (512L << 10U);
  for (const char* id : {"0", "1"}) {
    std::istringstream sent(read(std::string("two-rails.") + id + ".sent"));
    long by_eth0 = 0;  // the collectives as well
    long by_eth1 = 0;
    sent >> by_eth0 >> by_eth1;
    EXPECT_GE(by_eth1, trial + trial / 2);
  }
}

TEST_F(RdmaChoiceTest, TakesRdmaThoughTheStoreIsInTheOtherNetwork) {
  expect_route("both-networks", {"by ucx: verbs over rxe1:1, auto: ", " 0 wrong"});
}

TEST_F(RdmaChoiceTest, TakesTcpAndSaysWhyWhenTheRdmaLinkIsDown) {
  expect_route("one-network",
               {"by tcp: sockets over eth0, auto: ",
                "; left out: verbs over rxe1:1: rxe1:1 of vm1: its port is 1: DOWN", " 0 wrong"});
}

}  // namespace
}  // namespace rondo::test
