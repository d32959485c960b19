// Which exception means which exit status, and who of a job says so.
//
// All errors of the program end here, in main() or in the loop of `rondo compare`: the libraries
// throw, and only this file knows what their exceptions mean to a user.

#include "failure.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <new>
#include <optional>
#include <stdexcept>
#include <string>
#include <system_error>
#include <utility>

#include <rondo/train/dataset.hpp>
#include <rondo/train/experiment.hpp>
#include <rondo/train/trainer.hpp>
#include <rondo/transport/error.hpp>

#include "launch/environment.hpp"
#include "machine.hpp"
#include "say.hpp"
#include "table.hpp"

namespace rondo::tools {
namespace {

Speaker speaker = Speaker::every_rank;

// Messages of libraries may have several lines, and those about a file texts of that file.
std::string one_line(std::string text) {
  std::ranges::replace(text, '\n', ' ');
  return printable(std::move(text));
}

// A lack of memory is this rank's own failure; any other error of the transport is about a peer, or
// about a network, which may be there again later.
int status_of(const transport::Error& error) {
  return error.code() == transport::Errc::out_of_memory ? exit_failed : exit_peer_lost;
}

// An error that another rank reports carries the words of its code twice.
std::string text_of(const transport::Error& error) {
  const std::string code = ": " + error.code().message();
  std::string text = one_line(error.what());
  if (text.ends_with(code + code)) text.resize(text.size() - code.size());
  return text;
}

// The library of C++ says nothing but the reason of a thread that it cannot start.
std::string text_of(const std::system_error& error) {
  const std::string text = one_line(error.what());
  const bool lacks = error.code() == std::errc::resource_unavailable_try_again;
  if (!lacks || text != error.code().message()) return text;
  return fmt::format("cannot start a thread {}: {}", beyond_limits, text);
}

// Which rank this is, for a message; nothing when it is none, or when its launcher's variables are
// what the message is about.
std::optional<std::string> own_rank() {
  try {
    return is_rank() ? std::optional(rank_name()) : std::nullopt;
  } catch (const std::invalid_argument&) {
    return std::nullopt;
  }
}

// Where rank 0 cannot be trusted to have the same error: before the ranks have met, each reads the
// files of its own host.
bool speaks_beside_rank_0() {
  switch (speaker) {
    case Speaker::every_rank:
      return true;
    case Speaker::first_of_host:
      return is_first_of_host();
    case Speaker::rank_0:
      break;
  }
  return false;
}

}  // namespace

void let_speak(Speaker which) { speaker = which; }

// Configuration and data are read by all ranks alike; a lost peer looks different to each.
Failure describe(const std::exception_ptr& exception) {
  try {
    std::rethrow_exception(exception);
  } catch (const UsageError& error) {
    return {exit_usage, true, one_line(error.what())};
  } catch (const train::ConfigError& error) {
    return {exit_usage, true, one_line(error.what())};
  } catch (const train::DataError& error) {
    return {exit_data, true, one_line(error.what())};
  } catch (const train::NumericError& error) {
    return {exit_not_finite, true, one_line(error.what())};
  } catch (const train::Stopped& stopped) {
    return {exit_stopped, true, one_line(stopped.what())};
  } catch (const transport::Error& error) {
    return {status_of(error), false, text_of(error)};
  } catch (const std::invalid_argument& error) {  // the libraries' word for what a user has given
    return {exit_usage, false, one_line(error.what())};
  } catch (const std::bad_alloc& error) {
    return {exit_failed, false,
            fmt::format("out of memory (of the machine, of the control group, or of ulimit -v or "
                        "-d): {}",
                        error.what())};
  } catch (const std::system_error& error) {
    return {exit_failed, false, text_of(error)};
  } catch (const std::exception& error) {
    return {exit_failed, false, one_line(error.what())};
  } catch (...) {
    return {exit_failed, false, "an unknown error"};
  }
}

int report(const std::exception_ptr& exception) {
  const Failure failure = describe(exception);
  const auto rank = own_rank();
  // A launcher, or a command without ranks.
  if (!rank) {
    say("rondo: {}\n", failure.text);
  } else if (!failure.on_all_ranks) {
    say("rondo: rank {}: {}\n", *rank, failure.text);
  } else if (*rank == "0") {
    say("rondo: {}\n", failure.text);
  } else if (speaks_beside_rank_0()) {
    print_of_rank(*rank, host_name(), failure.text);
  }
  return failure.status;
}

void tell_of_broken_image(const std::string& problem) {
  say("rondo: {}; skipped\n", one_line(problem));
}

void print_of_rank(std::string_view rank, std::string_view host, std::string_view text) {
  say("rondo: rank {} on {}: {}\n", rank, host, text);
}

}  // namespace rondo::tools
