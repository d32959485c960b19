// Finds out what a process is told about its job, and where it runs.
//
// This source reads Rondo's own variables (the secret's are read in auth.cpp, the plug-ins' in
// links/plugin.cpp, other launchers' in launchers.cpp). Every value is checked here, so that a
// typing error is reported with the variable's name before any rank waits for another.

#include "bootstrap/environment.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <charconv>
#include <cmath>
#include <cstddef>
#include <cstdlib>
#include <fstream>
#include <string_view>

#include <rondo/transport/error.hpp>
#include <rondo/transport/usable_cpus.hpp>

namespace rondo::transport::bootstrap {
namespace {

[[noreturn]] void refuse_setting(const std::string& what) {
  throw Error(Errc::bootstrap_failed, what);
}

// The whole of `text` as a number, or nothing.
template <typename Number>
std::optional<Number> parse(std::string_view text) {
  Number value = 0;
  const char* end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, value);
  return error == std::errc{} && rest == end ? std::optional(value) : std::nullopt;
}

void read_number(const char* name, int least, int& value) {
  if (const auto text = variable(name)) value = number(name, *text, least);
}

// Zero or more, finite.
void read_amount(const char* name, double& value) {
  const auto text = variable(name);
  if (!text) return;
  const auto amount = parse<double>(*text);
  if (!amount || !std::isfinite(*amount) || *amount < 0) {
    refuse_setting(std::string(name) + "='" + *text + "' is not a number of at least 0");
  }
  value = *amount;
}

bool is_job(std::string_view text) {
  constexpr std::size_t digits = 32;
  return text.size() == digits &&
         text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

// "host:1234"; an IPv6 address stands in brackets, because it has colons of its own.
std::optional<Endpoint> parse_endpoint(std::string_view text) {
  const std::size_t colon = text.rfind(':');
  if (colon == std::string_view::npos) return std::nullopt;
  std::string_view host = text.substr(0, colon);
  const bool bracketed = host.size() > 2 && host.front() == '[' && host.back() == ']';
  if (bracketed) host = host.substr(1, host.size() - 2);
  // Without brackets it would not be clear where the address ends and the port begins.
  const bool six = host.find(':') != std::string_view::npos;
  if (host.empty() || six != bracketed ||
      host.find_first_of("[]/ \t\n") != std::string_view::npos) {
    return std::nullopt;
  }
  const auto port = parse<std::uint16_t>(text.substr(colon + 1));
  if (!port || *port == 0) return std::nullopt;
  return Endpoint{.host = std::string(host), .port = *port};
}

}  // namespace

std::string to_string(const Endpoint& endpoint) {
  const bool six = endpoint.host.find(':') != std::string::npos;
  return (six ? "[" + endpoint.host + "]" : endpoint.host) + ":" + std::to_string(endpoint.port);
}

std::optional<std::string> variable(const char* name) {
  const char* value = std::getenv(name);
  if (value == nullptr || *value == '\0') return std::nullopt;
  return std::string(value);
}

int number(const char* name, const std::string& text, int least) {
  const auto value = parse<int>(text);
  if (!value || *value < least) {
    refuse_setting(std::string(name) + "='" + text + "' is not a number of at least " +
                   std::to_string(least));
  }
  return *value;
}

std::optional<std::uint64_t> parse_number(std::string_view text) {
  return parse<std::uint64_t>(text);
}

bool parse_coordinator(std::string_view text, LaunchInfo& launch) {
  constexpr std::string_view local = "local:";
  constexpr std::string_view tcp = "tcp:";
  if (text.starts_with(local)) {
    launch.job = text.substr(local.size());
    return is_job(launch.job);
  }
  const std::size_t slash = text.rfind('/');
  if (!text.starts_with(tcp) || slash == std::string_view::npos) return false;
  launch.job = text.substr(slash + 1);
  launch.coordinator = parse_endpoint(text.substr(tcp.size(), slash - tcp.size()));
  return is_job(launch.job) && launch.coordinator;
}

void read_options(LaunchInfo& launch) {
  read_number("RONDO_LISTENER", 0, launch.listener);
  read_number("RONDO_RECORDER", 0, launch.recorder);
  read_number("RONDO_FAKE_NODES", 1, launch.fake_nodes);
  read_amount("RONDO_LATENCY_US", launch.latency_us);
  read_amount("RONDO_BANDWIDTH_GBS", launch.bandwidth_gbs);
  // The names are checked where they are used: by join_nodes() and select_interfaces().
  launch.fabric = variable("RONDO_FABRIC").value_or("");
  launch.interface = variable("RONDO_INTERFACE").value_or("");
}

void check_fake_nodes(const LaunchInfo& launch) {
  if (launch.fake_nodes <= launch.size) return;
  refuse_setting("RONDO_FAKE_NODES=" + std::to_string(launch.fake_nodes) + " are more than the " +
                 std::to_string(launch.size) + " ranks");
}

std::optional<LaunchInfo> read_environment() {
  const auto coordinator = variable("RONDO_COORDINATOR");
  const auto rank = variable("RONDO_RANK");
  const auto size = variable("RONDO_SIZE");
  if (!coordinator && !rank && !size) return std::nullopt;
  if (!coordinator || !rank || !size) {
    refuse_setting(
        "RONDO_COORDINATOR, RONDO_RANK and RONDO_SIZE must be set together; `rondo run` does so");
  }
  LaunchInfo launch;
  if (!parse_coordinator(*coordinator, launch)) {
    refuse_setting(
        "RONDO_COORDINATOR='" + *coordinator +
        "' is not of the form local:JOB or tcp:HOST:PORT/JOB, JOB being 32 hexadecimal digits");
  }
  launch.rank = number("RONDO_RANK", *rank, 0);
  launch.size = number("RONDO_SIZE", *size, 1);
  if (launch.rank >= launch.size) {
    refuse_setting("RONDO_RANK=" + *rank + " is not below RONDO_SIZE=" + *size);
  }
  read_options(launch);
  check_fake_nodes(launch);
  return launch;
}

std::string host_name() {
  std::array<char, 256> name{};
  if (::gethostname(name.data(), name.size() - 1) != 0) return "unknown host";
  return name.data();
}

// Containers on one machine have its boot id, but each its network namespace; neither abstract
// sockets nor loopback lead from one to another.
std::string machine_key() {
  std::string boot;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  struct stat space = {};
  if (::stat("/proc/self/ns/net", &space) != 0) return boot;
  return boot + "/" + std::to_string(space.st_ino);
}

std::string node_key(int rank, int size, int fake_nodes) {
  const long nodes = std::min(fake_nodes, size);
  if (nodes <= 0) return machine_key();
  return machine_key() + "/" + std::to_string(rank * nodes / size);
}

// The calling thread waits, so its own CPUs count, even if OpenMP has bound it to a few of those
// that the process may use: ranks whose threads are bound to the same CPU must not spin.
CpuMask own_cpus() {
  CpuMask mask{};
  for (const int cpu : thread_cpus()) {
    const auto word = static_cast<std::size_t>(cpu) / 64;
    if (word < mask.size()) mask[word] |= std::uint64_t{1} << (static_cast<unsigned>(cpu) % 64U);
  }
  return mask;
}

// More ranks than CPUs take turns, so a rank that waits should not spin: whom it waits for may need
// its CPU.
bool outnumber_cpus(const std::vector<CpuMask>& ranks, const std::filesystem::path& root) {
  int available = 0;
  for (std::size_t i = 0; i < CpuMask{}.size(); ++i) {
    std::uint64_t any = 0;
    for (const CpuMask& mask : ranks) any |= mask[i];
    available += std::popcount(any);
  }
  const auto count = static_cast<double>(ranks.size());
  const auto quota = cpu_quota(root);
  return count > available || (quota && count > quota->cpus);
}

}  // namespace rondo::transport::bootstrap
