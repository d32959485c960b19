#pragma once

#include <fmt/format.h>

#include <cstdio>
#include <string_view>
#include <utility>

namespace rondo::tools {

/// Writes `text` to `stream` at once. A text that cannot be written is lost, and no more: a run
/// goes on without it. For standard output, lost_output() then says why.
void put(std::FILE* stream, std::string_view text) noexcept;

/// Writes a text to stderr, as fmt::print() does, but without an exception where that fails: a full
/// disk under the log must change neither the exit status nor a run. A pipe that nobody reads any
/// more still ends the process by SIGPIPE.
template <typename... Args>
void say(fmt::format_string<Args...> format, Args&&... args) {
  put(stderr, fmt::format(format, std::forward<Args>(args)...));
}

/// The errno of the first put() to standard output that failed; 0 when none has. Results are
/// printed by one thread of a process.
[[nodiscard]] int lost_output() noexcept;

}  // namespace rondo::tools
