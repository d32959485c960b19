#include <filesystem>
#include <memory>

#include "command.hpp"
#include "exit_status.hpp"
#include "launch/launch_options.hpp"
#include "launch/launcher.hpp"

namespace rondo::tools {

void add_run(CLI::App& app, const std::vector<std::string>& command, int& status) {
  CLI::App* run = app.add_subcommand("run", "Run a program as the ranks of a job on this machine");
  run->footer(
      "Write: rondo run [OPTIONS] -- PROGRAM [ARGUMENTS]\n"
      "Each rank finds its place in RONDO_RANK, RONDO_SIZE, RONDO_THREADS and RONDO_COORDINATOR.\n"
      "SIGUSR2 writes the ranks' flight records (to --flight-record or .) and ends nothing.\n"
      "Ends with the status of the first rank that failed, or 128 + n when signal n ended it.");
  auto request = std::make_shared<PlacementRequest>();
  auto fabric = std::make_shared<FabricRequest>();
  add_launch_options(*run, *request);
  auto flight_record = std::make_shared<std::filesystem::path>();
  add_fabric_options(*run, *fabric);
  add_flight_record_option(*run, *flight_record, "nowhere");
  run->callback([&command, &status, request, fabric, flight_record] {
    if (command.empty()) {
      throw UsageError("nothing to run; write: rondo run -n 2 -- PROGRAM ARGUMENTS");
    }
    status = launch({command, place(read_machine(), *request), *fabric, *flight_record});
  });
}

}  // namespace rondo::tools
