#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "doctor/finding.hpp"
#include "launch/hosts.hpp"

namespace rondo::tools {

/// The output and the status that a command left behind.
struct Captured {
  int status = 0;  ///< 128 + n when signal n ended it
  bool in_time = true;
  std::string out = {};
  std::string err = {};

  [[nodiscard]] bool failed() const noexcept { return status != 0 || !in_time; }
  /// Why it failed: the first of its errors that is a message of rondo, but for reports of a start,
  /// else the last line. An agent or a library may write others before.
  [[nodiscard]] std::string cause() const;
  /// The text that measure_links_as_rank() wrote; empty if nothing. Login scripts of other hosts
  /// may have written before it, also into the same line.
  [[nodiscard]] std::string report() const;
};

/// Executes the commands at the same time, with the standard input closed, and ends those that have
/// not ended by the deadline.
[[nodiscard]] std::vector<Captured> capture(const std::vector<std::vector<std::string>>& commands,
                                            std::chrono::seconds deadline);

/// Each link of this host, measured between two ranks that are started for it.
[[nodiscard]] std::vector<Finding> check_links();

/// The links that work between the hosts, and their clocks. `reports` are the findings of all of
/// them, which have the speeds of their interfaces.
[[nodiscard]] std::vector<Finding> check_between(const HostsRequest& hosts,
                                                 const std::vector<Finding>& reports);

/// As a rank that one of the two above has started: measures between all ranks; rank 0 writes one
/// JSON object to its standard output. Returns the exit status.
[[nodiscard]] int measure_links_as_rank();

/// The measurements of measure_links_as_rank() for two ranks.
struct PairTimes {
  std::string from = {};  ///< hosts
  std::string to = {};
  double latency_us = 0.0;
  double bytes_per_second = 0.0;
  double clock_seconds = 0.0;        ///< the second one's clock minus the first one's
  double clock_error_seconds = 0.0;  ///< at most
};

/// A link between two hosts beside `hardware_bytes_per_second` of its interface; 0: not known.
[[nodiscard]] Finding judge_pair(const std::string& route, const PairTimes& pair,
                                 double hardware_bytes_per_second);
[[nodiscard]] Finding judge_clocks(const std::vector<PairTimes>& pairs);

/// Says what it means that none of `findings`, one of each link, has worked between the hosts. One
/// whose measurement has not ended might.
void judge_broken_links(std::vector<Finding>& findings, bool all_have_ended);

/// The bytes per second of the interface that `route` names as in "ucx: tcp over eth0, ...", by
/// what check_network() found on `host`; 0: not known.
[[nodiscard]] double hardware_speed(const std::string& route, const std::string& host,
                                    const std::vector<Finding>& reports);

}  // namespace rondo::tools
