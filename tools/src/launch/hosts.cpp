// `rondo run --hosts`: the ranks of a job on several hosts, started over ssh or another agent.
//
// On each host the agent starts `rondo run --part`, which starts the ranks of that host as `rondo
// run` always does. Its task and the job's secret come over its standard input, where no other user
// can read them: one line of JSON. The first host opens the port of rank 0's store and says so in
// the first line of its output; then the other hosts are told. After that the line carries signals
// to the host, SIGKILL, too, and its end means that the launcher is gone: no rank outlives it.
// Output and exit status come back as the agent passes them on.
//
// Here the agents are supervised as ranks are elsewhere, so that the first failure, the grace
// periods and the exit status are the same.

#include "launch/hosts.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstddef>
#include <cstdlib>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>
#include <stdexcept>
#include <string_view>
#include <system_error>
#include <thread>
#include <utility>

#include "failure.hpp"
#include "launch/environment.hpp"
#include "launch/open_files.hpp"
#include "launch/spawn.hpp"
#include "launch/supervisor.hpp"
#include "options.hpp"
#include "say.hpp"

namespace rondo::tools {
namespace {

using Json = nlohmann::json;

// The first line of the first host's output: "rondo-store tcp:HOST:PORT/JOB".
constexpr std::string_view store_mark = "rondo-store ";
// "signal 15" to a host: for its ranks.
constexpr std::string_view signal_mark = "signal ";
// As ssh ends when it does not get to the host.
constexpr int exit_of_agent = 255;

// The variables of this process' environment that the ranks of another host need.
constexpr std::array<std::string_view, 10> passed_on = {"RONDO_FABRIC=",
                                                        "RONDO_INTERFACE=",
                                                        "RONDO_LATENCY_US=",
                                                        "RONDO_BANDWIDTH_GBS=",
                                                        "RONDO_PLUGIN_PATH=",
                                                        "LD_LIBRARY_PATH=",
                                                        "UCX_",
                                                        "FI_",
                                                        "OMP_",
                                                        "DNNL_"};

// "me@node7" is node7 to the other hosts.
std::string name_of_host(const std::string& destination) {
  return destination.substr(destination.find('@') + 1);
}

void send_line(int socket, std::string line) {
  line += '\n';
  // A host that is gone is noticed by its agent's end.
  static_cast<void>(send(socket, line.data(), line.size(), MSG_NOSIGNAL));
}

// One host's ranks, and the agent that has started them.
struct HostPart {
  std::string destination;
  int first = 0;
  int ranks = 0;
  Descriptor line = {};    // to the standard input over there
  Descriptor output = {};  // of the first host alone
  pid_t pid = -1;
};

std::vector<HostPart> divide(const std::vector<std::string>& names, int ranks) {
  const int hosts = static_cast<int>(names.size());
  std::vector<HostPart> parts;
  for (int i = 0; i < hosts; ++i) {
    HostPart& part = parts.emplace_back();
    part.destination = names[static_cast<std::size_t>(i)];
    part.first = ranks * i / hosts;
    part.ranks = ranks * (i + 1) / hosts - part.first;
  }
  return parts;
}

// The far end of `near`, for the agent.
Descriptor connect_line(Descriptor& near) {
  int ends[2] = {-1, -1};
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) {
    throw std::system_error(errno, std::generic_category(), "socketpair");
  }
  near = Descriptor(ends[0]);
  return Descriptor(ends[1]);
}

void start_agent(HostPart& part, const HostsRequest& hosts, const MoreOpenFiles& files,
                 const HeldSignals& signals) {
  Spawn spawn;
  spawn.command =
      command_on(hosts, part.destination, "exec " + quoted(own_command({"run", "--part"})));
  for (char** entry = environ; *entry != nullptr; ++entry) spawn.environment.emplace_back(*entry);
  const Descriptor input = connect_line(part.line);
  Descriptor output;
  if (part.first == 0) output = connect_line(part.output);
  spawn.input = input.value();
  spawn.output = output.value();
  // Ctrl-C must reach the ranks by way of the line, and not end the agent.
  spawn.own_group = true;
  spawn.signal_mask = signals.previous();
  spawn.open_files = files.limit_before();
  part.pid = start(spawn);
}

Json order_for(const HostPart& part, int size, const std::vector<std::string>& command,
               const LaunchRequest& request, const std::string& secret) {
  return {{"version", RONDO_VERSION},
          {"host", name_of_host(part.destination)},
          {"first", part.first},
          {"ranks", part.ranks},
          {"size", size},
          {"threads", request.placement.threads},
          {"bind", request.placement.binding == Binding::automatic},
          {"oversubscribe", request.placement.oversubscribe},
          {"flight_record", request.flight_record.string()},
          {"folder", std::filesystem::current_path().string()},
          {"settings", settings_of(request.fabric)},
          {"command", command},
          {"secret", secret},
          {"coordinator", ""}};
}

// The agents have the same output, and ssh makes it one that does not wait. Returns errno where
// that fails, else 0.
int write_all(int descriptor, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t count = write(descriptor, bytes.data(), bytes.size());
    if (count < 0 && errno == EAGAIN) {
      pollfd entry{.fd = descriptor, .events = POLLOUT, .revents = 0};
      poll(&entry, 1, -1);
      continue;
    }
    if (count < 0 && errno != EINTR) return errno;
    if (count > 0) bytes.remove_prefix(static_cast<std::size_t>(count));
  }
  return 0;
}

// The output of the first host's ranks, for the standard output of this process.
class PassedOutput {
 public:
  void write(std::string_view bytes) {
    const int failure = write_all(STDOUT_FILENO, bytes);
    if (failure_ == 0) failure_ = failure;
  }

  // Throws where something was lost, as main() does without hosts. The reader of a pipe may have
  // had enough of it: that is no error.
  void expect_whole() const {
    if (failure_ == 0 || failure_ == EPIPE) return;
    throw std::system_error(failure_, std::generic_category(), "cannot write to standard output");
  }

 private:
  int failure_ = 0;  // the first
};

// Where the first host has opened its store; nothing when it has ended, or when a signal asks for
// the end. Text that a login script has written before, also in the same line, is passed on.
std::optional<std::string> wait_for_store(const HostPart& first, PassedOutput& output,
                                          int& end_signal) {
  std::string line;
  while (end_signal == 0) {
    pollfd entry{.fd = first.output.value(), .events = POLLIN, .revents = 0};
    constexpr int pause_ms = 50;
    if (poll(&entry, 1, pause_ms) <= 0) {
      end_signal = HeldSignals::take_end_signal();
      continue;
    }
    char byte = 0;
    if (read(first.output.value(), &byte, 1) <= 0) {
      output.write(line);
      return std::nullopt;
    }
    line += byte;
    if (byte != '\n') continue;
    const std::size_t mark = line.find(store_mark);
    output.write(std::string_view(line).substr(0, mark));
    if (mark != std::string::npos) {
      const std::size_t begin = mark + store_mark.size();
      return line.substr(begin, line.size() - 1 - begin);
    }
    line.clear();
  }
  return std::nullopt;
}

// Reads to the end also where nothing can be written, because the ranks would wait otherwise.
void copy_output(int from, PassedOutput& output) {
  std::array<char, 65536> buffer{};
  for (ssize_t count = 0; (count = read(from, buffer.data(), buffer.size())) != 0;) {
    if (count < 0 && errno != EINTR) return;
    if (count > 0) output.write({buffer.data(), static_cast<std::size_t>(count)});
  }
}

void deliver(const HostPart& part, int signal) {
  // Neither is passed on: the agent of a part that has been stopped would not read the order to
  // continue.
  if (signal == SIGTSTP || signal == SIGCONT) return;
  send_line(part.line.value(), fmt::format("{}{}", signal_mark, signal));
  // Nothing comes after it, and what has not begun to run ranks ends with its input.
  if (signal == SIGKILL) shutdown(part.line.value(), SHUT_RDWR);
}

// All hosts connect at the same time; the first is told first, because the others need its port.
// Throws ExecuteError if the agent is none.
int run_parts(std::vector<HostPart>& parts, const HostsRequest& hosts,
              const std::vector<Json>& orders) {
  const MoreOpenFiles files(parts.size() + files_of_launcher);
  const HeldSignals signals;
  Supervisor supervisor(signals, GracePeriods{}, [&parts] {
    for (const HostPart& part : parts) deliver(part, SIGUSR2);
  });
  for (HostPart& part : parts) {
    try {
      start_agent(part, hosts, files, signals);
    } catch (const ExecuteError&) {
      supervisor.kill_all();
      throw;
    }
    supervisor.add_host(part.destination, part.pid, [&part](int signal) { deliver(part, signal); });
  }
  send_line(parts.front().line.value(), orders.front().dump());
  int end_signal = 0;
  PassedOutput output;
  const auto store = wait_for_store(parts.front(), output, end_signal);
  if (end_signal != 0) {
    supervisor.kill_all();
    return signal_base + end_signal;
  }
  for (std::size_t i = 1; i < parts.size(); ++i) {
    Json order = orders[i];
    order["coordinator"] = store.value_or("");
    // Without a store there is nothing to do: the end of its input says so.
    if (store) send_line(parts[i].line.value(), order.dump());
    if (!store) parts[i].line.close();
  }
  std::thread copier(copy_output, parts.front().output.value(), std::ref(output));
  const int status = supervisor.wait().exit_status();
  copier.join();
  if (!store && status == exit_done) {
    const std::string& first = parts.front().destination;
    throw std::runtime_error(
        fmt::format("the agent ended on {} without starting rondo; see what this prints: {}", first,
                    fmt::join(command_on(hosts, first, quoted(own_command({"--version"}))), " ")));
  }
  if (status == exit_done) output.expect_whole();
  return status;
}

void check(const LaunchRequest& request, const HostsRequest& hosts) {
  if (request.fabric.fake_nodes) {
    throw UsageError("--fake-nodes is about one machine; leave it out with --hosts");
  }
  check_hosts(hosts);
  if (request.placement.ranks != 0 &&
      request.placement.ranks < static_cast<int>(hosts.names.size())) {
    throw UsageError(fmt::format("{} ranks are fewer than the {} hosts; name fewer hosts",
                                 request.placement.ranks, hosts.names.size()));
  }
}

// JSON holds no other text. Found before any agent is started.
void refuse_other_than_utf8(const Json& order) {
  const Json texts = order.flatten();
  for (const Json& text : texts) {
    try {
      static_cast<void>(text.dump());
    } catch (const Json::exception&) {
      throw UsageError(
          fmt::format("{} is not UTF-8, so that it cannot be sent to other hosts; give the ranks "
                      "another text, or put it into a file that they read",
                      text.dump(-1, ' ', false, Json::error_handler_t::replace)));
    }
  }
}

// One line of the standard input, byte by byte: what follows it is for another reader.
std::optional<std::string> read_line() {
  std::string line;
  for (char byte = 0; byte != '\n';) {
    const ssize_t count = read(STDIN_FILENO, &byte, 1);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return std::nullopt;
    if (byte != '\n') line += byte;
  }
  return line;
}

// Makes signals of what the launcher says, and ends the ranks when it is gone.
void follow_launcher() {
  while (const auto line = read_line()) {
    if (!line->starts_with(signal_mark)) continue;
    const int signal = std::atoi(line->substr(signal_mark.size()).c_str());
    kill(getpid(), signal == SIGKILL ? HeldSignals::killed() : signal);
    // The signal below would give the ranks time.
    if (signal == SIGKILL) return;
  }
  kill(getpid(), HeldSignals::abandoned());
}

Json parse_order(const std::string& line) {
  Json order = Json::parse(line, nullptr, false);
  if (!order.is_object() || !order.contains("version")) {
    throw UsageError("rondo run --part is only for rondo run --hosts to start");
  }
  if (order["version"] != RONDO_VERSION) {
    throw UsageError(fmt::format(
        "host {} has rondo {}, but the job was started by another version; install the same on "
        "all hosts",
        order.value("host", ""), RONDO_VERSION));
  }
  return order;
}

// As if the command had been typed here, in the folder of the launcher.
void settle_in(const Json& order) {
  const std::string folder = order.at("folder");
  if (chdir(folder.c_str()) != 0) {
    throw UsageError(
        fmt::format("host {} has no folder {}; start the job in one that all hosts "
                    "have",
                    order.value("host", ""), folder));
  }
  for (const std::string setting : order.at("settings")) {
    const std::size_t equals = setting.find('=');
    setenv(setting.substr(0, equals).c_str(), setting.substr(equals + 1).c_str(), 1);
  }
}

Job job_of(const Json& order) {
  PlacementRequest request;
  request.ranks = order.at("ranks");
  request.threads = order.at("threads");
  request.binding = order.at("bind") ? Binding::automatic : Binding::none;
  request.oversubscribe = order.at("oversubscribe");
  Job job;
  job.command = order.at("command").get<std::vector<std::string>>();
  job.placement = place(read_machine(), request);
  job.flight_record = order.at("flight_record").get<std::string>();
  job.host = order.at("host");
  job.first = order.at("first");
  job.size = order.at("size");
  return job;
}

}  // namespace

void add_hosts_options(Command& command, HostsRequest& hosts, const std::string& text) {
  command.option("--hosts A,B,...", hosts.names, text).separated_by(',');
  command.option("--agent COMMAND", hosts.agent, "What starts a command on a host, as ssh does")
      .with_default();
}

void check_hosts(const HostsRequest& hosts) {
  for (const std::string& name : hosts.names) {
    if (name.empty() || name.starts_with('-')) {
      throw UsageError(fmt::format("--hosts: '{}' is no host; write --hosts a,b,c", name));
    }
    if (std::ranges::count(hosts.names, name) > 1) {
      throw UsageError(
          fmt::format("--hosts names {} twice; name it once, its ranks are a block", name));
    }
  }
  if (hosts.agent.find_first_not_of(' ') == std::string::npos) {
    throw UsageError("--agent names no command; leave it out, or write --agent ssh");
  }
}

std::vector<std::string> command_on(const HostsRequest& hosts, const std::string& destination,
                                    const std::string& text) {
  std::vector<std::string> command;
  std::istringstream words(hosts.agent);
  for (std::string word; words >> word;) command.push_back(word);
  command.push_back(destination);
  command.push_back(text);
  return command;
}

// A quote within a word ends the quotes, stands alone, and begins them again.
std::string quoted(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) {
    text += text.empty() ? "'" : " '";
    for (const char c : word) text += c == '\'' ? std::string("'\\''") : std::string(1, c);
    text += "'";
  }
  return text;
}

std::vector<std::string> settings_of(const FabricRequest& fabric) {
  std::vector<std::string> settings;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text(*entry);
    if (std::ranges::any_of(passed_on, [&](auto start) { return text.starts_with(start); })) {
      settings.emplace_back(text);
    }
  }
  // The later ones count.
  for (std::string& setting : environment_of(fabric)) settings.push_back(std::move(setting));
  return settings;
}

int launch_on_hosts(const std::vector<std::string>& command, const LaunchRequest& request,
                    const HostsRequest& hosts) {
  check(request, hosts);
  const int size =
      request.placement.ranks > 0 ? request.placement.ranks : static_cast<int>(hosts.names.size());
  std::vector<HostPart> parts = divide(hosts.names, size);
  const std::string secret = random_digits(secret_bytes);
  std::vector<Json> orders;
  for (const HostPart& part : parts) {
    orders.push_back(order_for(part, size, command, request, secret));
    refuse_other_than_utf8(orders.back());
  }
  int status = exit_done;
  try {
    status = run_parts(parts, hosts, orders);
  } catch (const ExecuteError& error) {
    say("rondo: {}\n", error.what());
    return exit_status_of(error);
  }
  const std::string program = own_path();
  if (status == exit_of_agent) {
    // A rank may have ended so, too.
    say("rondo: a host may not be reachable by '{}'; try: {} HOST {} --version\n", hosts.agent,
        hosts.agent, program);
  } else if (status == exit_not_found) {
    say("rondo: a host may have no {}; try: {} HOST {} --version\n", program, hosts.agent, program);
  }
  return status;
}

int run_part() {
  const auto line = read_line();
  // The launcher has ended or kills all, or the first host has ended.
  if (!line || line->starts_with(signal_mark)) return exit_peer_lost;
  const Json order = parse_order(*line);
  settle_in(order);
  const Job job = job_of(order);
  Bootstrap bootstrap;
  bootstrap.coordinator = order.at("coordinator");
  if (job.first == 0) {
    bootstrap = bootstrap_at(job.host);
    // Without the launcher the ranks end in any case.
    static_cast<void>(
        write_all(STDOUT_FILENO, fmt::format("{}{}\n", store_mark, bootstrap.coordinator)));
  }
  bootstrap.secret = keep_secret(order.at("secret"));
  const HeldSignals signals;
  std::thread(follow_launcher).detach();
  return launch(job, signals, std::move(bootstrap)).status;
}

}  // namespace rondo::tools
