#include "launch/launch_options.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <string>
#include <string_view>

#include <rondo/transport/world.hpp>

#include "exit_status.hpp"
#include "launch/environment.hpp"

namespace rondo::tools {
namespace {

const std::map<std::string, Binding> bindings = {{"auto", Binding::automatic},
                                                 {"none", Binding::none}};

std::string name_of(Binding binding) {
  const auto named = [binding](const auto& entry) { return entry.second == binding; };
  return std::ranges::find_if(bindings, named)->first;
}

// Empty when it can be a fabric's name; CLI11 takes anything else for what is wrong with it.
std::string check_fabric(const std::string& text) {
  const std::size_t colon = text.find(':');
  const std::string_view name = std::string_view(text).substr(0, colon);
  const bool alone = colon == std::string::npos;
  const bool known = ((name == "auto" || name == "shm") && alone) || name == "ucx" || name == "ofi";
  if (known && (alone || colon + 1 < text.size())) return {};
  return "'" + text + "' is none of auto, ucx, ucx:TRANSPORTS, ofi, ofi:PROVIDER, shm";
}

}  // namespace

void add_launch_options(CLI::App& command, PlacementRequest& request) {
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
          "Give each rank cores of its own: auto, none")
      ->check(CLI::IsMember(bindings))
      ->default_str(name_of(request.binding))
      ->type_name("HOW");
  command.add_flag("--oversubscribe", request.oversubscribe,
                   "Allow more threads than there are cores");
}

void add_fabric_options(CLI::App& command, FabricRequest& request) {
  command
      .add_option("--fake-nodes", request.fake_nodes,
                  "Let the ranks count as K nodes, joined by loopback")
      ->check(CLI::Range(1, 4096))
      ->type_name("K");
  command
      .add_option("--fabric", request.fabric,
                  "What joins nodes: auto, ucx[:TRANSPORTS], ofi[:PROVIDER], shm")
      ->check(check_fabric)
      ->default_str(transport::FabricOptions{}.name)
      ->type_name("NAME");
  command
      .add_option("--interface", request.interface,
                  "Network interfaces by preference, as in ib0,eth*,^docker0,10.0.0.0/8")
      ->type_name("LIST");
  command
      .add_option("--latency-us", request.latency_us,
                  "Inject so much latency into messages between nodes")
      ->check(CLI::Range(0.0, 1e7))
      ->type_name("X");
  command
      .add_option("--bandwidth-gbs", request.bandwidth_gbs,
                  "Slow the links between nodes to so many 1e9 bytes per second")
      ->check(CLI::Range(1e-6, 1e6))
      ->type_name("X");
}

void add_flight_record_option(CLI::App& command, std::filesystem::path& folder,
                              const std::string& otherwise) {
  command
      .add_option("--flight-record", folder,
                  "Where the ranks' last operations are written when the job fails (default: " +
                      otherwise + ")")
      ->type_name("DIR");
}

void refuse_other_size(const PlacementRequest& request) {
  const int size = size_from_environment();
  if (request.ranks == 0 || request.ranks == size) return;
  throw UsageError(fmt::format(
      "this process is one of {} ranks already, so it cannot start {}; leave out -n here, and "
      "give it to what starts the ranks",
      size, request.ranks));
}

}  // namespace rondo::tools
