// A program with an event loop of its own: it counts the lines of its standard input and, at the
// same time, takes part in an allreduce, without waiting in the library. Start it with
//
//   rondo run -n 2 -- event_loop < FILE

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <span>

#include <rondo/transport/communicator.hpp>
#include <rondo/transport/world.hpp>

namespace {

/// Counts the lines that can be read now; false at the end of the input.
bool count_lines(long& lines) {
  std::array<char, 4096> text{};
  const auto bytes = ::read(STDIN_FILENO, text.data(), text.size());
  if (bytes > 0) lines += std::count(text.data(), text.data() + bytes, '\n');
  return bytes > 0;
}

}  // namespace

int main() {
  auto world = rondo::transport::World::attach();
  pollfd transport{.fd = world.event_descriptor(), .events = POLLIN, .revents = 0};
  pollfd input{.fd = STDIN_FILENO, .events = POLLIN, .revents = 0};
  long lines = 0;
  std::array<int, 1> sum{world.rank()};

  auto request = world.communicator().allreduce(std::span<int>(sum));
  bool reduced = false;
  while (!reduced || input.fd >= 0) {
    reduced = reduced || request.test();
    // When something has moved, the loop looks at the input without sleeping.
    const int patience = !reduced && !world.arm() ? 0 : -1;
    if (reduced) transport.fd = -1;
    if (reduced && input.fd < 0) break;
    std::array<pollfd, 2> entries{transport, input};
    if (::poll(entries.data(), entries.size(), patience) < 0) return 1;
    if (entries[1].revents != 0 && !count_lines(lines)) input.fd = -1;  // poll() skips it
  }
  std::printf("rank %d: %ld lines, sum of ranks %d\n", world.rank(), lines, sum[0]);
}
