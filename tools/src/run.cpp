// `rondo run`: any program as the ranks of a job on this machine.
//
// The program may use the library, or be `rondo train` or `rondo bench`, which find by RONDO_RANK
// that they are ranks already. What stands behind "--" is never read as options of this command.

#include <memory>

#include "failure.hpp"
#include "launch/launcher.hpp"
#include "options.hpp"

namespace rondo::tools {

void add_run(Command& root) {
  Command run = root.add("run", "Run a program as the ranks of a job on this machine");
  auto request = std::make_shared<LaunchRequest>();
  add_placement_options(run, request->placement);
  add_fabric_options(run, request->fabric);
  add_flight_record_option(run, request->flight_record, "nowhere");
  run.footer(
      "Write: rondo run [OPTIONS] -- PROGRAM [ARGUMENTS]\n"
      "A rank learns about its job from RONDO_RANK, RONDO_SIZE, RONDO_THREADS, RONDO_COORDINATOR.\n"
      "SIGUSR2 writes the ranks' flight records (to --flight-record or .) and ends nothing.\n"
      "Ends with the status of the first rank that failed, or 128 + n when signal n ended it.");
  run.does([request](const CommandLine& line) {
    if (line.behind_dashes.empty()) {
      throw UsageError("nothing to run; write: rondo run -n 2 -- PROGRAM ARGUMENTS");
    }
    return launch({line.behind_dashes, place(read_machine(), request->placement), request->fabric,
                   request->flight_record});
  });
}

}  // namespace rondo::tools
