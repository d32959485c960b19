// `rondo doctor --hosts` over two hosts with interfaces of their own.

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "hosts/job.hpp"

namespace rondo::test {
namespace {

using nlohmann::json;

json examine(const std::string& names) {
  const auto script = std::filesystem::path(variable("RONDO_HOSTS_SCRIPT"));
  const Ended ended =
      Program({script.string(), "exec", "1", rondo_path(), "doctor", "--hosts", names, "--agent",
               (script.parent_path() / "ssh").string(), "--threads", "1", "--format", "json"})
          .wait();
  const json report = json::parse(ended.out, nullptr, false);
  EXPECT_TRUE(report.is_object()) << ended.out << ended.err;
  EXPECT_EQ(ended.status, report.at("problems") == 0 ? 0 : 1) << report.dump(2);
  return report;
}

std::vector<json> findings(const json& report, const std::string& check) {
  std::vector<json> found;
  for (const json& one : report.at("findings")) {
    if (one.at("check") == check) found.push_back(one);
  }
  return found;
}

using HostsDoctorTest = HostsTest;

TEST_F(HostsDoctorTest, MeasuresLinksBesideTheirInterfacesAndTheClocks) {
  const json report = examine("h1,h2");
  std::vector<std::string> names;
  for (const json& link : findings(report, "link_between")) {
    names.push_back(link["values"]["link"]);
    EXPECT_EQ(link["values"]["usable"], true) << link;
    EXPECT_EQ(link["values"]["from"], "h1");
    EXPECT_EQ(link["values"]["to"], "h2");
    EXPECT_GT(link["values"]["latency_us"], 0.0);
    EXPECT_GT(link["values"]["bytes_per_second"], 0.0);
    // veth says that it has 10 Gbit/s.
    EXPECT_EQ(link["values"]["hardware_bytes_per_second"], 1.25e9) << link;
  }
  EXPECT_THAT(names, testing::IsSupersetOf({"ofi", "tcp", "ucx"}));
  // They have one clock.
  const auto clocks = findings(report, "clocks");
  ASSERT_EQ(clocks.size(), 1U);
  EXPECT_EQ(clocks[0]["level"], "ok") << clocks[0];
  EXPECT_EQ(findings(report, "kernel").size(), 2U);
}

TEST_F(HostsDoctorTest, SaysThatNoLinkLeadsOverACutWire) {
  hosts({"cut", "2"});
  const json report = examine("h1,h2");
  hosts({"mend", "2"});
  std::vector<std::string> names;
  for (const json& link : findings(report, "link_between")) {
    names.push_back(link["values"]["link"]);
    EXPECT_EQ(link["level"], "problem") << link;
    EXPECT_EQ(link["values"]["usable"], false);
  }
  EXPECT_THAT(names, testing::IsSupersetOf({"ofi", "tcp", "ucx"}));
  EXPECT_GE(report["problems"], 1);
}

TEST_F(HostsDoctorTest, GoesOnWithoutAHostThatIsMissing) {
  const json report = examine("h1,h9");
  EXPECT_THAT(report.dump(), testing::HasSubstr("Could not resolve hostname h9"));
  EXPECT_TRUE(findings(report, "link_between").empty());
  EXPECT_EQ(findings(report, "kernel").size(), 1U);
}

}  // namespace
}  // namespace rondo::test
