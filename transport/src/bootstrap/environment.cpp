#include "bootstrap/environment.hpp"

#include <charconv>
#include <cmath>
#include <cstdlib>
#include <utility>

#include <rondo/transport/error.hpp>

#include "bootstrap/coordinator.hpp"

namespace rondo::transport::rendezvous {
namespace {

[[noreturn]] void fail(const std::string& what) { throw Error(Errc::rendezvous_failed, what); }

std::optional<std::string> variable(const char* name) {
  const char* value = std::getenv(name);
  if (value == nullptr || *value == '\0') return std::nullopt;
  return std::string(value);
}

int number(const char* name, const std::string& text, int least) {
  int value = 0;
  const char* end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc{} || rest != end || value < least) {
    fail(std::string(name) + "='" + text + "' is not a number of at least " +
         std::to_string(least));
  }
  return value;
}

// Zero or more, finite.
double amount(const char* name, const std::string& text) {
  double value = 0;
  const char* end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc{} || rest != end || !std::isfinite(value) || value < 0) {
    fail(std::string(name) + "='" + text + "' is not a number of at least 0");
  }
  return value;
}

void read_options(Placement& placement) {
  if (const auto text = variable("RONDO_LISTENER")) {
    placement.listener = number("RONDO_LISTENER", *text, 0);
  }
  if (const auto text = variable("RONDO_RECORDER")) {
    placement.recorder = number("RONDO_RECORDER", *text, 0);
  }
  if (const auto text = variable("RONDO_FAKE_NODES")) {
    placement.fake_nodes = number("RONDO_FAKE_NODES", *text, 1);
    if (placement.fake_nodes > placement.size) {
      fail("RONDO_FAKE_NODES=" + *text + " are more than the " + std::to_string(placement.size) +
           " ranks");
    }
  }
  if (const auto text = variable("RONDO_LATENCY_US")) {
    placement.latency_us = amount("RONDO_LATENCY_US", *text);
  }
  if (const auto text = variable("RONDO_BANDWIDTH_GBS")) {
    placement.bandwidth_gbs = amount("RONDO_BANDWIDTH_GBS", *text);
  }
  placement.fabric = variable("RONDO_FABRIC").value_or("");
  placement.interface = variable("RONDO_INTERFACE").value_or("");
}

// Alone although a launcher started several: every process would train by itself, unnoticed.
void refuse_foreign_launchers() {
  for (const char* name : {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS"}) {
    const auto text = variable(name);
    if (!text || *text == "1") continue;
    fail(std::string(name) + "=" + *text +
         " says that this is one of several tasks, but this version joins only what `rondo run` "
         "starts; use `rondo run -n " +
         *text + " -- COMMAND`, or unset " + name);
  }
}

}  // namespace

std::optional<Placement> read_environment() {
  const auto coordinator = variable("RONDO_COORDINATOR");
  const auto rank = variable("RONDO_RANK");
  const auto size = variable("RONDO_SIZE");
  if (!coordinator && !rank && !size) {
    refuse_foreign_launchers();
    return std::nullopt;
  }
  if (!coordinator || !rank || !size) {
    fail("RONDO_COORDINATOR, RONDO_RANK and RONDO_SIZE must be set together; `rondo run` does so");
  }
  auto parsed = parse_coordinator(*coordinator);
  if (!parsed) {
    fail("RONDO_COORDINATOR='" + *coordinator +
         "' is not of the form local:JOB or tcp:HOST:PORT/JOB, JOB being 32 hexadecimal digits");
  }
  Placement placement{.job = std::move(parsed->job),
                      .rank = number("RONDO_RANK", *rank, 0),
                      .size = number("RONDO_SIZE", *size, 1),
                      .coordinator = std::move(parsed->endpoint)};
  if (placement.rank >= placement.size) {
    fail("RONDO_RANK=" + *rank + " is not below RONDO_SIZE=" + *size);
  }
  read_options(placement);
  return placement;
}

}  // namespace rondo::transport::rendezvous
