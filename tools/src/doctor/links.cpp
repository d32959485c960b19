// Which links work, on this host and between hosts, and how fast they are beside the hardware.
//
// A link is measured by ranks that `rondo run` starts for it, so that the doctor sees what a job
// would see, and a link that crashes or hangs cannot take the doctor with it. Only their output is
// looked at: one JSON object, or the line that says what went wrong.

#include "doctor/links.hpp"

#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <csignal>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>
#include <system_error>

#include <rondo/transport/links.hpp>

#include "doctor/kernel_files.hpp"
#include "failure.hpp"
#include "files.hpp"
#include "launch/spawn.hpp"

namespace rondo::tools {
namespace {

using Clock = std::chrono::steady_clock;
using Json = nlohmann::json;

// Ranks give up a message after 5 s, and meeting after 25.
constexpr std::chrono::seconds links_deadline{30};
// Time for hosts: logins, then one pair after the other, each for seconds on a slow network.
constexpr std::chrono::seconds hosts_deadline{60};
constexpr std::chrono::seconds time_of_host{4};

// Reductions and links of a busy machine vary.
constexpr double least_percent_of_limit = 50.0;
constexpr double least_percent_of_hardware = 30.0;
constexpr double long_latency_us = 200.0;
constexpr double clock_note_seconds = 0.1;
constexpr double clock_warning_seconds = 1.0;

Descriptor memory_file() {
  Descriptor file(memfd_create("rondo-doctor", MFD_CLOEXEC));
  if (file.value() < 0) throw std::system_error(errno, std::generic_category(), "memfd_create");
  return file;
}

std::string contents_of(const Descriptor& file) {
  return read_file(fmt::format("/proc/self/fd/{}", file.value()));
}

// A command that runs, with the files that take what it writes.
struct Running {
  Descriptor out = memory_file();
  Descriptor err = memory_file();
  pid_t pid = -1;
  Captured result = {};
};

Running begin(const std::vector<std::string>& command) {
  Running running;
  Spawn spawn;
  spawn.command = command;
  for (char** entry = environ; *entry != nullptr; ++entry) spawn.environment.emplace_back(*entry);
  spawn.keeps_stdin = false;
  spawn.output = running.out.value();
  spawn.errors = running.err.value();
  // So that all of it can be ended at the deadline.
  spawn.own_group = true;
  sigemptyset(&spawn.signal_mask);
  try {
    running.pid = start(spawn);
  } catch (const ExecuteError& error) {
    running.result.status = exit_status_of(error);
    running.result.err = fmt::format("rondo: {}\n", error.what());
  }
  return running;
}

// Waits for its end, not beyond the deadline.
void finish(Running& running, Clock::time_point until) {
  if (running.pid < 0) return;
  running.result.in_time = ends_by(running.pid, until);
  if (!running.result.in_time) kill(-running.pid, SIGKILL);
  int status = 0;
  while (waitpid(running.pid, &status, 0) < 0 && errno == EINTR) {
  }
  running.result.status =
      WIFSIGNALED(status) ? signal_base + WTERMSIG(status) : WEXITSTATUS(status);
  running.result.out = contents_of(running.out);
  running.result.err = contents_of(running.err);
}

// The command that starts ranks which measure links.
std::vector<std::string> measuring(const std::vector<std::string>& options) {
  std::vector<std::string> command = own_command({"run", "--threads", "1"});
  command.insert(command.end(), options.begin(), options.end());
  command.emplace_back("--");
  for (std::string& word : own_command({"doctor", "--measure"})) command.push_back(std::move(word));
  return command;
}

// The report that the ranks wrote; nothing when it is none.
std::optional<Json> report_in(const Captured& captured) {
  const std::string report = captured.report();
  if (captured.failed() || report.empty()) return std::nullopt;
  return Json::parse(report);
}

bool is_report(const std::string& text) {
  const Json report = Json::parse(text, nullptr, false);
  return report.is_object() && report.contains("pairs");
}

// `hosts` are those of the ranks, in their order; empty where all are here.
PairTimes pair_in(const Json& json, const std::vector<std::string>& hosts = {}) {
  const auto host_of = [&](const char* end) {
    return hosts.empty() ? "" : hosts.at(json.at(end).get<std::size_t>());
  };
  return {.from = host_of("from"),
          .to = host_of("to"),
          .latency_us = json.at("latency_us"),
          .bytes_per_second = json.at("bytes_per_second"),
          .clock_seconds = json.at("clock_seconds"),
          .clock_error_seconds = json.at("clock_error_seconds")};
}

// "latency 4.5 us, 2.10 GB/s"
std::string times_text(const PairTimes& pair) {
  return fmt::format("latency {:.2f} us, {:.2f} GB/s", pair.latency_us,
                     pair.bytes_per_second / 1e9);
}

// Inside a node: beside what memory allows.
void add_reduction(const Json& reduction, Finding& finding) {
  const double percent = reduction.at("percent_of_limit");
  const double limit = reduction.at("limit_bytes_per_second");
  finding.found += fmt::format(
      "; allreduce of 16 MiB: {:.1f} GB/s, {:.0f} % of one pass over memory ({:.1f} GB/s)",
      reduction.at("bytes_per_second").get<double>() / 1e9, percent, limit / 1e9);
  for (const char* name : {"bytes_per_second", "limit_bytes_per_second", "percent_of_limit"}) {
    finding.values[fmt::format("allreduce_{}", name)] = reduction.at(name).get<double>();
  }
  if (percent >= least_percent_of_limit) return;
  finding.level = Level::note;
  finding.means =
      "The reduction takes more than twice as long as memory needs, as a rule because "
      "the ranks have to wait for a CPU.";
  finding.advice = "Look at kernels_together; measure again by rondo bench allreduce -n 2 --limit.";
}

// One link of this host.
Finding check_link(const transport::LinkFacts& link) {
  Finding finding{.check = "link_" + link.name};
  finding.values = {{"usable", link.problem.empty()}};
  if (!link.problem.empty()) {
    finding.level = Level::note;
    finding.found = "cannot be used: " + link.problem;
    finding.source = "the plug-in";
    finding.means =
        "Ranks of several hosts are joined by tcp then, which fast networks need not be.";
    finding.advice = "Install what the message names if the job is to run on several hosts.";
    return finding;
  }
  const bool within = link.name == "shm";
  finding.source = "measured between two ranks here, as by rondo bench";
  std::vector<std::string> options = {"-n", "2"};
  if (!within) options.insert(options.end(), {"--fake-nodes", "2", "--fabric", link.name});
  const Captured captured = capture({measuring(options)}, links_deadline).front();
  const auto report = report_in(captured);
  finding.values["usable"] = report.has_value();
  if (!report) {
    finding.level = within ? Level::problem : Level::warning;
    finding.found = "does not work: " + captured.cause();
    finding.means = within ? "No job of several ranks runs here."
                           : "The plug-in can be loaded, and two ranks cannot use it.";
    finding.advice =
        "Do what the message says; docs/troubleshooting.md says more about some messages.";
    return finding;
  }
  const PairTimes pair = pair_in(report->at("pairs").at(0));
  const std::string route = report->at("route");
  // It begins with the name of the link, as the finding does.
  const std::string way = route.substr(std::min(route.size(), link.name.size() + 2));
  finding.found = (within ? "" : way + ": ") + times_text(pair);
  finding.values["route"] = within ? "shm" : route;
  finding.values["latency_us"] = pair.latency_us;
  finding.values["bytes_per_second"] = pair.bytes_per_second;
  if (!within) finding.means = "Over loopback; between hosts it is measured with --hosts.";
  if (report->contains("reduction")) add_reduction(report->at("reduction"), finding);
  return finding;
}

// The interface that a route names: "eth0" of "ucx: tcp over eth0, as asked".
std::string interface_of(const std::string& route) {
  const std::string word = " over ";
  const std::size_t found = route.find(word);
  if (found == std::string::npos) return {};
  const std::size_t first = found + word.size();
  return route.substr(first, route.find_first_of(", ", first) - first);
}

// A link that no rank could use between the hosts.
Finding broken_link(const std::string& name, const std::string& cause) {
  Finding finding{.check = "link_between"};
  finding.level = Level::note;
  finding.found = fmt::format("{} does not work between the hosts: {}", name, cause);
  finding.source = "measured between one rank on each host";
  finding.values = {{"link", name}, {"usable", false}};
  return finding;
}

const std::string own_mark = "rondo: ";

// Does the launcher say this before ranks run?
bool tells_a_start(const std::string& line) {
  return line.find(": pid ") != std::string::npos || line.find(" count as ") != std::string::npos ||
         line.find("not bound") != std::string::npos || line.starts_with('#');
}

}  // namespace

std::string Captured::cause() const {
  if (!in_time) return "it did not end in time, and was ended";
  std::istringstream text(err);
  std::string last;
  for (std::string line; std::getline(text, line);) {
    if (line.empty() || tells_a_start(line)) continue;
    if (line.starts_with(own_mark)) return line.substr(own_mark.size());
    last = line;
  }
  return last.empty() ? fmt::format("it ended with status {}", status) : last;
}

std::string Captured::report() const {
  std::istringstream text(out);
  for (std::string line; std::getline(text, line);) {
    for (std::size_t at = 0; (at = line.find('{', at)) != std::string::npos; ++at) {
      if (is_report(line.substr(at))) return line.substr(at);
    }
  }
  return {};
}

std::vector<Captured> capture(const std::vector<std::vector<std::string>>& commands,
                              std::chrono::seconds deadline) {
  const Clock::time_point until = Clock::now() + deadline;
  std::vector<Running> running;
  for (const auto& command : commands) running.push_back(begin(command));
  std::vector<Captured> results;
  for (Running& one : running) {
    finish(one, until);
    results.push_back(std::move(one.result));
  }
  return results;
}

// One after the other: they would disturb each other.
std::vector<Finding> check_links() {
  std::vector<Finding> findings;
  for (const transport::LinkFacts& link : transport::links()) findings.push_back(check_link(link));
  return findings;
}

double hardware_speed(const std::string& route, const std::string& host,
                      const std::vector<Finding>& reports) {
  const std::string name = "megabits_" + interface_of(route);
  for (const Finding& finding : reports) {
    if (finding.check != "network" || finding.host != host) continue;
    const auto megabits = finding.values.find(name);
    if (megabits != finding.values.end() && megabits->is_number()) {
      return megabits->get<double>() * 1e6 / 8;
    }
  }
  return 0.0;
}

Finding judge_pair(const std::string& route, const PairTimes& pair,
                   double hardware_bytes_per_second) {
  Finding finding{.check = "link_between"};
  const double percent = hardware_bytes_per_second > 0.0
                             ? 100.0 * pair.bytes_per_second / hardware_bytes_per_second
                             : 0.0;
  finding.found = fmt::format("{} - {}, {}: {}", pair.from, pair.to, route, times_text(pair));
  if (percent > 0.0) {
    finding.found += fmt::format(", {:.0f} % of the interface's {:.2f} GB/s", percent,
                                 hardware_bytes_per_second / 1e9);
  }
  finding.source = "measured between one rank on each host; the speed of the interface in /sys";
  finding.values = {
      {"link", route.substr(0, route.find(':'))},
      {"usable", true},
      {"route", route},
      {"from", pair.from},
      {"to", pair.to},
      {"latency_us", pair.latency_us},
      {"bytes_per_second", pair.bytes_per_second},
      {"hardware_bytes_per_second", fact_if(percent > 0.0, hardware_bytes_per_second)}};
  if (percent > 0.0 && percent < least_percent_of_hardware) {
    finding.level = Level::warning;
    finding.means = "The link is much slower than its interface.";
    finding.advice =
        "Look for other traffic, a wrong interface (transport.interface) or TCP where "
        "the fabric has more (transport.fabric).";
  } else if (pair.latency_us > long_latency_us) {
    finding.level = Level::warning;
    finding.means =
        "InfiniBand takes 1 to 3 us and Ethernet 10 to 50; every reduction waits for "
        "some messages.";
    finding.advice =
        "Look for other traffic and for routers between the hosts, and choose the "
        "interface by transport.interface.";
  }
  return finding;
}

Finding judge_clocks(const std::vector<PairTimes>& pairs) {
  const PairTimes& worst = *std::ranges::max_element(
      pairs, {}, [](const PairTimes& pair) { return std::abs(pair.clock_seconds); });
  const double skew = std::abs(worst.clock_seconds);
  Finding finding{.check = "clocks"};
  finding.found = fmt::format("the clock of {} is {:.6f} s {} that of {}, to within {:.6f} s",
                              worst.to, skew, worst.clock_seconds < 0.0 ? "behind" : "before",
                              worst.from, worst.clock_error_seconds);
  finding.source = "measured by messages between the hosts; the largest difference";
  finding.values = {{"skew_seconds", skew},
                    {"error_seconds", worst.clock_error_seconds},
                    {"from", worst.from},
                    {"to", worst.to}};
  if (skew < clock_note_seconds) return finding;
  finding.level = skew < clock_warning_seconds ? Level::note : Level::warning;
  finding.means =
      "Training does not need equal clocks, but times in logs cannot be compared, make "
      "and rsync take old files for new ones, and Slurm's munge refuses other hosts.";
  finding.advice = "Let chrony or ntpd set the clocks of all hosts.";
  return finding;
}

std::vector<Finding> check_between(const HostsRequest& hosts, const std::vector<Finding>& reports) {
  std::vector<Finding> findings;
  std::vector<PairTimes> pairs;
  bool all_have_ended = true;
  const auto several = static_cast<int>(hosts.names.size());
  for (const transport::LinkFacts& facts : transport::links()) {
    const std::string& link = facts.name;
    if (link == "shm") continue;
    const Captured captured =
        capture({measuring({"--hosts", fmt::format("{}", fmt::join(hosts.names, ",")), "--agent",
                            hosts.agent, "--bind", "none", "--fabric", link})},
                hosts_deadline + several * time_of_host)
            .front();
    const auto report = report_in(captured);
    if (!report) {
      all_have_ended = all_have_ended && captured.in_time;
      findings.push_back(broken_link(link, captured.cause()));
      continue;
    }
    for (const Json& json : report->at("pairs")) {
      const PairTimes pair = pair_in(json, hosts.names);
      const std::string route = report->at("route");
      const double speed = std::min(hardware_speed(route, pair.from, reports),
                                    hardware_speed(route, pair.to, reports));
      findings.push_back(judge_pair(route, pair, speed));
      pairs.push_back(pair);
    }
  }
  if (!pairs.empty()) {
    findings.push_back(judge_clocks(pairs));
    return findings;
  }
  judge_broken_links(findings, all_have_ended);
  return findings;
}

void judge_broken_links(std::vector<Finding>& findings, bool all_have_ended) {
  for (Finding& finding : findings) {
    finding.level = all_have_ended ? Level::problem : Level::warning;
    finding.means = all_have_ended ? "No job can run on these hosts together."
                                   : "The hosts are slow, or many: it was not measured to the end.";
    finding.advice =
        "Do what the message says; docs/troubleshooting.md says more about some messages.";
  }
}

}  // namespace rondo::tools
