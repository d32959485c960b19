// The output of a command beside its results, and lines of a run as they come.

#include "say.hpp"

#include <cerrno>
#include <cstdio>
#include <string_view>

namespace rondo::tools {
namespace {

int reason_of_lost_output = 0;

}  // namespace

void put(std::FILE* stream, std::string_view text) noexcept {
  errno = 0;
  const bool written = std::fwrite(text.data(), 1, text.size(), stream) == text.size();
  const bool flushed = std::fflush(stream) == 0;
  // Other threads write to stderr, too.
  if (stream != stdout || (written && flushed)) return;
  if (reason_of_lost_output == 0) reason_of_lost_output = errno;
}

int lost_output() noexcept { return reason_of_lost_output; }

}  // namespace rondo::tools
