#include "train/dump_request.hpp"

#include <fmt/format.h>

#include <cstdio>
#include <system_error>

#include <rondo/transport/flight_record.hpp>

namespace rondo::tools {
namespace {

volatile std::sig_atomic_t asked = 0;

void ask(int /*signal*/) { asked = 1; }

}  // namespace

DumpRequest::DumpRequest() {
  struct sigaction action = {};
  action.sa_handler = ask;
  action.sa_flags = SA_RESTART;
  ::sigemptyset(&action.sa_mask);
  ::sigaction(SIGUSR2, &action, &previous_);
}

DumpRequest::~DumpRequest() { ::sigaction(SIGUSR2, &previous_, nullptr); }

void DumpRequest::answer(const transport::World& world, const std::filesystem::path& folder) const {
  if (asked == 0) return;
  asked = 0;
  const auto path = transport::FlightRecord::path_in(folder, world.rank());
  try {
    world.dump_flight_record(path);
    fmt::print(stderr, "rondo: rank {}: the flight record is in {}\n", world.rank(), path.string());
  } catch (const std::system_error& error) {
    fmt::print(stderr, "rondo: rank {}: {}\n", world.rank(), error.what());
  }
}

}  // namespace rondo::tools
