#include "rendezvous/environment.hpp"

#include <charconv>
#include <cstdlib>
#include <string_view>

#include <rondo/transport/error.hpp>

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
  constexpr std::string_view local = "local:";
  constexpr std::size_t job_digits = 32;
  const bool is_local = coordinator->starts_with(local);
  if (!is_local || coordinator->size() != local.size() + job_digits ||
      coordinator->find_first_not_of("0123456789abcdef", local.size()) != std::string::npos) {
    fail("RONDO_COORDINATOR='" + *coordinator + "' is not of the form local:JOB, JOB being 32 " +
         "hexadecimal digits");
  }
  Placement placement{.job = coordinator->substr(local.size()),
                      .rank = number("RONDO_RANK", *rank, 0),
                      .size = number("RONDO_SIZE", *size, 1)};
  if (placement.rank >= placement.size) {
    fail("RONDO_RANK=" + *rank + " is not below RONDO_SIZE=" + *size);
  }
  return placement;
}

}  // namespace rondo::transport::rendezvous
