#include "launch/launch_options.hpp"

#include <fmt/format.h>

#include <map>
#include <string>

#include "exit_status.hpp"
#include "launch/environment.hpp"

namespace rondo::tools {

void add_launch_options(CLI::App& command, PlacementRequest& request) {
  static const std::map<std::string, Binding> bindings = {{"auto", Binding::automatic},
                                                          {"none", Binding::none}};
  command.add_option("-n,--ranks", request.ranks, "Ranks to start (default: one per NUMA domain)")
      ->check(CLI::Range(1, 4096))
      ->type_name("N");
  command
      .add_option("-t,--threads", request.threads,
                  "Threads of each rank (default: its share of the cores)")
      ->check(CLI::Range(1, 4096))
      ->type_name("T");
  command
      .add_option_function<std::string>(
          "--bind", [&request](const std::string& name) { request.binding = bindings.at(name); },
          "Give each rank cores of its own: auto, none (default: auto)")
      ->check(CLI::IsMember({"auto", "none"}))
      ->type_name("HOW");
  command.add_flag("--oversubscribe", request.oversubscribe,
                   "Allow more threads than there are cores");
}

void refuse_other_size(const PlacementRequest& request) {
  const int size = size_from_environment();
  if (request.ranks == 0 || request.ranks == size) return;
  throw UsageError(fmt::format(
      "this process is one of {} ranks already, so it cannot start {}; give -n to the launcher",
      size, request.ranks));
}

}  // namespace rondo::tools
