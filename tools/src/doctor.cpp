// `rondo doctor`: why jobs are slow here, or do not start.
//
// The checks are in doctor/. Checks that only read come first, so that people have something to
// look at while kernels and links are measured.
//
// With --hosts the same command runs on each host, started by the same agent as the ranks of
// `rondo run --hosts`, and writes its findings as JSON. They are put together here; hosts that
// answered and have this version are then measured against each other.

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <optional>

#include "doctor/finding.hpp"
#include "doctor/links.hpp"
#include "doctor/report.hpp"
#include "failure.hpp"
#include "launch/environment.hpp"
#include "launch/hosts.hpp"
#include "launch/launcher.hpp"
#include "options.hpp"

namespace rondo::tools {
namespace {

// The options of the command line.
struct DoctorOptions {
  PlacementRequest placement = {};
  HostsRequest hosts = {};
  Format format = Format::text;
  bool facts_only = false;
  bool verbose = false;
  bool measure = false;  // this process is a rank that measures links
};

// A host may have slow disks and a slow login, and measures for some seconds.
constexpr std::chrono::seconds host_deadline{40};

// Shows each finding as soon as it is there, to people.
class Reporter {
 public:
  Reporter(const DoctorOptions& options, std::vector<std::string> hosts)
      : text_(options.format == Format::text), verbose_(options.verbose) {
    report_.version = RONDO_VERSION;
    report_.hosts = std::move(hosts);
    if (text_) fmt::print("rondo {}, {}\n", RONDO_VERSION, fmt::join(report_.hosts, ", "));
  }

  void add(const std::vector<Finding>& findings) {
    for (const Finding& finding : findings) {
      if (text_) print(finding);
      report_.findings.push_back(finding);
    }
    std::fflush(stdout);
  }

  // The exit status.
  int finish() const {
    fmt::print("{}\n", text_ ? "\n" + summary_of(report_) : as_json(report_));
    return report_.count(Level::problem) > 0 ? exit_failed : exit_done;
  }

 private:
  void print(const Finding& finding) {
    if (finding.host != host_) {
      host_ = finding.host;
      fmt::print("\n{}:\n", host_.empty() ? "all hosts" : host_);
    }
    fmt::print("{}", as_text(finding, verbose_));
  }

  bool text_;
  bool verbose_;
  std::string host_ = {};
  DoctorReport report_ = {};
};

int examine_this_host(const DoctorOptions& options) {
  Subject subject;
  subject.machine = read_machine();
  subject.request = options.placement;
  choose_placement(subject);
  Reporter reporter(options, {host_name()});
  reporter.add(read_findings(subject));
  if (!options.facts_only) {
    reporter.add(measure_kernels(subject));
    reporter.add(check_links());
  }
  return reporter.finish();
}

// What is asked of each host: its version, which every version can tell, then its findings.
std::string request_for_host(const DoctorOptions& options) {
  const auto hosts = static_cast<int>(options.hosts.names.size());
  const int ranks = std::max(1, (options.placement.ranks + hosts - 1) / hosts);
  std::vector<std::string> words = {"env"};
  for (std::string& setting : settings_of({})) words.push_back(std::move(setting));
  for (std::string& word :
       own_command({"doctor", "--format", "json", "-n", std::to_string(ranks)})) {
    words.push_back(std::move(word));
  }
  if (options.placement.threads > 0) {
    words.insert(words.end(), {"--threads", std::to_string(options.placement.threads)});
  }
  if (options.placement.oversubscribe) words.emplace_back("--oversubscribe");
  if (options.facts_only) words.emplace_back("--facts-only");
  return quoted(own_command({"--version"})) + " && exec " + quoted(words);
}

// The answer of a host.
struct HostAnswer {
  std::string version = {};  // empty: it could not be reached
  std::optional<DoctorReport> report = {};
};

// Where the version stands that "rondo --version" has written: at the begin of a line, unless a
// login script has written something before without a line break.
std::size_t version_in(const std::string& text) {
  const std::string mark = "rondo ";
  if (text.starts_with(mark)) return mark.size();
  const std::size_t line = text.find("\n" + mark);
  if (line != std::string::npos) return line + 1 + mark.size();
  const std::size_t within = text.find(mark);
  return within == std::string::npos ? within : within + mark.size();
}

HostAnswer answer_in(const std::string& text) {
  HostAnswer answer;
  const std::size_t begin = version_in(text);
  if (begin == std::string::npos) return answer;
  const std::size_t end = std::min(text.find('\n', begin), text.size());
  answer.version = text.substr(begin, end - begin);
  answer.report = parse_report(text.substr(end));
  return answer;
}

// Only versions that are equal can work together.
Finding check_reach(const HostAnswer& answer, const Captured& captured, const HostsRequest& hosts,
                    const std::string& name) {
  Finding finding{.check = "reach"};
  finding.found = "answers, with version " + answer.version;
  finding.source = "the agent: " + hosts.agent;
  finding.values = {{"reached", !answer.version.empty()}, {"version", answer.version}};
  const bool same = answer.version == RONDO_VERSION;
  if (same && answer.report) return finding;
  finding.level = Level::problem;
  if (answer.version.empty()) {
    finding.found = captured.cause();
    finding.means = "No rank can be started there.";
    finding.advice = fmt::format("Try: {} {} {} --version", hosts.agent, name, own_path());
  } else if (same) {
    finding.found = captured.cause();
    finding.means = "rondo is there, but rondo doctor did not end well.";
    finding.advice = "Run rondo doctor on that host.";
  } else {
    finding.means = fmt::format(
        "This host has {}; ranks of several versions refuse to work together.", RONDO_VERSION);
    finding.advice = "Install the same version on all hosts.";
  }
  return finding;
}

// The findings of one host, under its name.
std::vector<Finding> findings_of(const std::string& name, const HostAnswer& answer,
                                 const Captured& captured, const HostsRequest& hosts) {
  std::vector<Finding> findings = {check_reach(answer, captured, hosts, name)};
  if (answer.report) {
    const auto& own = answer.report->findings;
    findings.insert(findings.end(), own.begin(), own.end());
  }
  for (Finding& finding : findings) finding.host = name;
  return findings;
}

int examine_hosts(const DoctorOptions& options) {
  check_hosts(options.hosts);
  Reporter reporter(options, options.hosts.names);
  std::vector<std::vector<std::string>> commands;
  for (const std::string& name : options.hosts.names) {
    commands.push_back(command_on(options.hosts, name, request_for_host(options)));
  }
  const std::vector<Captured> captured = capture(commands, host_deadline);
  HostsRequest able = options.hosts;
  able.names.clear();
  std::vector<Finding> reports;
  for (std::size_t i = 0; i < captured.size(); ++i) {
    const std::string& name = options.hosts.names[i];
    const HostAnswer answer = answer_in(captured[i].out);
    const auto findings = findings_of(name, answer, captured[i], options.hosts);
    reporter.add(findings);
    reports.insert(reports.end(), findings.begin(), findings.end());
    if (answer.report && answer.version == RONDO_VERSION) able.names.push_back(name);
  }
  if (able.names.size() > 1 && !options.facts_only) reporter.add(check_between(able, reports));
  return reporter.finish();
}

int run_doctor(const DoctorOptions& options) {
  if (options.measure && is_rank()) return measure_links_as_rank();
  if (is_rank() || options.measure) {
    let_speak(Speaker::first_of_host);  // all ranks fail here
    throw UsageError("rondo doctor starts ranks of its own; start it without a launcher");
  }
  return options.hosts.names.empty() ? examine_this_host(options) : examine_hosts(options);
}

}  // namespace

void add_doctor(Command& root) {
  Command doctor = root.add("doctor", "Find out why jobs are slow here, or do not start");
  auto options = std::make_shared<DoctorOptions>();
  add_placement_options(doctor, options->placement);
  add_hosts_options(doctor, options->hosts,
                    "Examine these hosts, and the links between them, instead of this one");
  add_format_option(doctor, options->format, text_or_json, "text, or json: one object");
  doctor.flag("--facts-only", options->facts_only, "Read what there is, and measure nothing");
  doctor.flag("-v,--verbose", options->verbose, "Explain what is in order, too");
  doctor.flag("--measure", options->measure, "").hidden();
  doctor.footer(R"(Examples:
  rondo doctor                           this host, for the ranks that a job would have
  rondo doctor -n 16 --threads 4         for so many ranks and threads
  rondo doctor --hosts node0,node1       both hosts, and what is between them
  rondo doctor --format json             for programs
Levels are ok, note, warning and problem. Takes some 5 seconds. Ends with status 1 when there
is a problem. docs/troubleshooting.md explains each check.)");
  doctor.does([options](const CommandLine& /*line*/) { return run_doctor(*options); });
}

}  // namespace rondo::tools
