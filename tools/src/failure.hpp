#pragma once

#include <exception>
#include <string>

namespace rondo::tools {

/// What an exception means to the user of a command.
struct Failure {
  int status = 1;             ///< see ExitStatus
  bool on_all_ranks = false;  ///< every rank of the job fails with it alike
  std::string text = {};      ///< one line
};

[[nodiscard]] Failure describe(const std::exception_ptr& exception);

/// Writes one line to stderr, with the rank in front where it says more; what all ranks have in
/// common is left to rank 0. Returns the exit status.
int report(const std::exception_ptr& exception);

}  // namespace rondo::tools
