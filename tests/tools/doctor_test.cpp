// `rondo doctor` as a program: on this host, and on two names of it with a script in place of ssh.
//
// What it finds depends on the machine, so the tests ask for facts that hold on any, and for what
// limits that they set themselves lead to.

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/program.hpp"
#include "support/scratch_folder.hpp"
#include "support/sources.hpp"
#include "tools/runs.hpp"

namespace rondo::test::doctor_test {
namespace {

using nlohmann::json;
using testing::AnyOf;
using testing::HasSubstr;
using testing::Not;

// The finding of that check, on that host.
json finding(const json& report, const std::string& check, const std::string& host = "") {
  for (const json& one : report.at("findings")) {
    if (one.at("check") == check && one.at("host") == host) return one;
  }
  ADD_FAILURE() << "nothing about " << check << " of '" << host << "' in " << report.dump(2);
  return json::object();
}

json examine(const Words& options) {
  const Ended ended = rondo(joined({"doctor", "--format", "json"}, options));
  const json report = json::parse(ended.out, nullptr, false);
  EXPECT_TRUE(report.is_object()) << ended.out << ended.err;
  EXPECT_EQ(ended.status, report.at("problems") == 0 ? 0 : 1);
  return report;
}

// It takes a while, so that the tests share it.
const json& report_of_two_ranks() {
  static const json report = examine({"-n", "2", "--threads", "1"});
  return report;
}

TEST(DoctorTest, MeasuresKernelsAndLinks) {
  const json& report = report_of_two_ranks();
  EXPECT_EQ(report["format"], 1);
  EXPECT_GT(finding(report, "kernel")["values"]["gflops_per_second"], 0.0);
  EXPECT_EQ(finding(report, "kernels_together")["values"]["threads"], 2);
  const json shm = finding(report, "link_shm")["values"];
  EXPECT_EQ(shm["usable"], true);
  EXPECT_GT(shm["latency_us"], 0.0);
  EXPECT_GT(shm["bytes_per_second"], 0.0);
  EXPECT_GT(shm["allreduce_limit_bytes_per_second"], 0.0);
  for (const char* link : {"link_ofi", "link_ucx"}) {
    const json found = finding(report, link)["values"];
    EXPECT_EQ(found["usable"] == true, found.contains("latency_us")) << found;
  }
}

TEST(DoctorTest, GivesEachFindingAllItsParts) {
  const json report = examine({"--facts-only"});
  EXPECT_GE(report["findings"].size(), 11U);
  for (const json& one : report["findings"]) {
    EXPECT_THAT(one["level"], AnyOf("ok", "note", "warning", "problem"));
    EXPECT_NE(one["found"], "") << one;
    EXPECT_NE(one["source"], "") << one;
    EXPECT_THAT(one["section"].get<std::string>(), HasSubstr("docs/troubleshooting.md#"));
    const bool in_order = one["level"] == "ok";
    EXPECT_TRUE(in_order || (one["means"] != "" && one["advice"] != "")) << one;
  }
}

// Names of interfaces and of pools of huge pages are the machine's.
TEST(DoctorTest, GivesOnlyValuesThatAreDocumented) {
  const std::string text = contents(sources() / "docs/troubleshooting.md");
  for (const json& one : report_of_two_ranks()["findings"]) {
    for (const auto& [name, value] : one["values"].items()) {
      if (name.starts_with("megabits_") || name.starts_with("pool_")) continue;
      EXPECT_THAT(text, HasSubstr("`" + name + "`")) << one["check"];
    }
  }
}

TEST(DoctorTest, SaysThatRanksDoNotStart) {
  const json report = examine({"--facts-only", "-n", "64", "--threads", "4096"});
  EXPECT_EQ(finding(report, "cpus")["level"], "problem");
  EXPECT_THAT(finding(report, "cpus")["means"].get<std::string>(), HasSubstr("64 ranks x 4096"));
}

TEST(DoctorTest, SeesTheLimitsOfItsShell) {
  const Ended ended =
      Program({"sh", "-c", "ulimit -n 64; exec \"$0\" doctor --facts-only -n 2", rondo_path()})
          .wait();
  EXPECT_EQ(ended.status, 1) << ended.out << ended.err;
  EXPECT_THAT(ended.out, HasSubstr("problem  open_files: 64 (soft), 64 (hard)"));
  EXPECT_THAT(ended.out, HasSubstr("see     docs/troubleshooting.md#open-files"));
}

TEST(DoctorTest, ExplainsWhatIsInOrderWhenAsked) {
  const std::string text = rondo({"doctor", "--facts-only"}).out;
  const std::string verbose = rondo({"doctor", "--facts-only", "--verbose"}).out;
  EXPECT_THAT(text, Not(HasSubstr("/proc/sys/kernel/osrelease")));
  EXPECT_THAT(verbose, HasSubstr("/proc/sys/kernel/osrelease"));
}

TEST(DoctorTest, IsNoProgramForRanks) {
  expect_refused(rondo({"doctor"}, {{"RONDO_RANK", "0"}, {"RONDO_SIZE", "1"}}), 2,
                 "start it without a launcher");
  EXPECT_EQ(rondo({"doctor", "--measure"}).status, 2);
  EXPECT_THAT(rondo({"doctor", "--help"}).out, Not(HasSubstr("--measure")));
}

TEST(DoctorTest, RefusesWhatIsNoHost) {
  EXPECT_THAT(rondo({"doctor", "--hosts", "a,a"}).err, HasSubstr("names a twice"));
  EXPECT_THAT(rondo({"doctor", "--hosts", "a", "--agent", " "}).err, HasSubstr("names no command"));
}

// Hosts that are names of this machine; one does not exist, and one has another version.
class DoctorHostsTest : public testing::Test {
 protected:
  [[nodiscard]] json examine_hosts(const std::string& hosts) const {
    return examine({"--hosts", hosts, "--agent", "sh " + agent_, "--facts-only"});
  }

 private:
  ScratchFolder folder_;
  std::string agent_ = folder_
                           .write("agent",
                                  "host=$1; shift\n"
                                  "[ $host = missing ] && echo no such host >&2 && exit 255\n"
                                  "[ $host = old ] && echo rondo 0.0.9 && exit 1\n"
                                  "[ $host = noisy ] && echo Welcome to this host\n"
                                  "[ $host = unbroken ] && printf 'Welcome: '\n"
                                  "exec sh -c \"$*\"\n")
                           .string();
};

TEST_F(DoctorHostsTest, ExaminesEach) {
  const json report = examine_hosts("localhost,noisy");
  EXPECT_EQ(finding(report, "reach", "localhost")["level"], "ok");
  EXPECT_EQ(finding(report, "processor", "noisy")["values"],
            finding(report, "processor", "localhost")["values"]);
}

// It was taken for one that cannot be reached.
TEST_F(DoctorHostsTest, TakesALoginScriptThatPrintsWithoutALineBreak) {
  const json report = examine_hosts("unbroken");
  EXPECT_EQ(finding(report, "reach", "unbroken")["level"], "ok");
}

TEST_F(DoctorHostsTest, NamesAHostThatCannotBeReached) {
  const json report = examine_hosts("localhost,missing");
  EXPECT_EQ(finding(report, "reach", "missing")["level"], "problem");
  EXPECT_EQ(finding(report, "reach", "missing")["found"], "no such host");
  EXPECT_EQ(finding(report, "reach", "localhost")["level"], "ok");
}

TEST_F(DoctorHostsTest, NamesAHostWithAnotherVersion) {
  const json report = examine_hosts("localhost,old");
  const json reach = finding(report, "reach", "old");
  EXPECT_EQ(reach["level"], "problem");
  EXPECT_EQ(reach["found"], "answers, with version 0.0.9");
  EXPECT_EQ(reach["advice"], "Install the same version on all hosts.");
}

}  // namespace
}  // namespace rondo::test::doctor_test
