#pragma once

#include <string>
#include <vector>

#include "command.hpp"
#include "launch/launcher.hpp"

namespace rondo::tools {

/// On which hosts `rondo run` starts ranks, and how it gets there.
struct HostsRequest {
  std::vector<std::string> names = {};  ///< empty: here
  /// Words that start a command on a host, separated by blanks, before host and command.
  std::string agent = "ssh -o BatchMode=yes -o ConnectTimeout=4";
  bool part = false;  ///< this process was started on one of the hosts
};

/// Adds --hosts, which help explains by `text`, and --agent.
void add_hosts_options(Command& command, HostsRequest& hosts, const std::string& text);

/// Throws UsageError for names that are no hosts or stand twice, and for an empty agent.
void check_hosts(const HostsRequest& hosts);

/// The command to execute here so that the shell of `destination` gets `text`: the agent and its
/// arguments.
[[nodiscard]] std::vector<std::string> command_on(const HostsRequest& hosts,
                                                  const std::string& destination,
                                                  const std::string& text);

/// `words` for a shell, each in quotes: "'a' 'b'".
[[nodiscard]] std::string quoted(const std::vector<std::string>& words);

/// "NAME=value" of this process' environment that processes on other hosts need: what concerns
/// links, plug-ins and kernels. The settings that `fabric` asks for come last.
[[nodiscard]] std::vector<std::string> settings_of(const FabricRequest& fabric);

/// Starts the ranks of `command` on several hosts, in equal blocks, and waits for them: as
/// launch(), with `rondo run --part` on each host for the ranks there. Without a number of ranks
/// each host gets one. Throws UsageError for what makes no sense on several hosts.
[[nodiscard]] int launch_on_hosts(const std::vector<std::string>& command,
                                  const LaunchRequest& request, const HostsRequest& hosts);

/// Starts the ranks of this host that the standard input tells of.
[[nodiscard]] int run_part();

}  // namespace rondo::tools
