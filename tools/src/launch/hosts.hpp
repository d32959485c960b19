#pragma once

#include <string>
#include <vector>

#include "command.hpp"
#include "launch/launcher.hpp"

namespace rondo::tools {

/// On which hosts `rondo run` starts ranks, and how it gets there.
struct HostsRequest {
  std::vector<std::string> names = {};  ///< empty: here
  /// What starts a command on a host: words, separated by blanks, before host and command.
  std::string agent = "ssh -o BatchMode=yes -o ConnectTimeout=4";
  bool part = false;  ///< this process was started on one of the hosts
};

void add_hosts_options(Command& command, HostsRequest& hosts);

/// Starts the ranks of `command` on several hosts, in equal blocks, and waits for them: as
/// launch(), with `rondo run --part` on each host for the ranks there. Without a number of ranks
/// each host gets one. Throws UsageError for what makes no sense on several hosts.
[[nodiscard]] int launch_on_hosts(const std::vector<std::string>& command,
                                  const LaunchRequest& request, const HostsRequest& hosts);

/// Starts the ranks of this host that the standard input tells of.
[[nodiscard]] int run_part();

}  // namespace rondo::tools
