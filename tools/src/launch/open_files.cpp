// Lets the launcher hold a file for each rank, or a socket for each host.
//
// Programs that the launcher starts get the user's own limit: a program that uses select() relies
// on a low one, and a rank raises its limit by itself where it must.

#include "launch/open_files.hpp"

#include <algorithm>
#include <filesystem>
#include <system_error>

namespace rondo::tools {
namespace {

// The folder that is read is one of them, which does no harm.
std::size_t count_open_files() {
  std::error_code error;
  std::filesystem::directory_iterator open("/proc/self/fd", error);
  std::size_t count = 0;
  for (; !error && open != std::filesystem::directory_iterator(); open.increment(error)) ++count;
  return count;
}

}  // namespace

MoreOpenFiles::MoreOpenFiles(std::size_t more) {
  getrlimit(RLIMIT_NOFILE, &before_);
  rlimit raised = before_;
  raised.rlim_cur = std::min<rlim_t>(count_open_files() + more, raised.rlim_max);
  if (raised.rlim_cur > before_.rlim_cur) setrlimit(RLIMIT_NOFILE, &raised);
}

MoreOpenFiles::~MoreOpenFiles() { setrlimit(RLIMIT_NOFILE, &before_); }

}  // namespace rondo::tools
