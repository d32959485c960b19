// How fast plain TCP carries an allreduce's bytes between two hosts: what Rondo's own is measured
// against. Both sides send so many bytes and receive as many at the same time.
//
//   tcp-stream listen ADDRESS PORT BYTES...
//   tcp-stream connect ADDRESS PORT BYTES...      prints the median time for each
//
// Start both, on two hosts, with the same numbers.

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <string>
#include <system_error>
#include <vector>

namespace {

int checked(long result, const char* what) {
  if (result < 0) throw std::system_error(errno, std::generic_category(), what);
  return static_cast<int>(result);
}

sockaddr_in address_of(const std::string& host, const std::string& port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<std::uint16_t>(std::stoi(port)));
  if (inet_pton(AF_INET, host.c_str(), &address.sin_addr) != 1) {
    throw std::invalid_argument(host + " is not an IPv4 address");
  }
  return address;
}

int meet(bool listens, const sockaddr_in& address) {
  const auto* generic = reinterpret_cast<const sockaddr*>(&address);
  int line = checked(socket(AF_INET, SOCK_STREAM, 0), "socket");
  if (listens) {
    const int yes = 1;
    checked(setsockopt(line, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes)), "SO_REUSEADDR");
    checked(bind(line, generic, sizeof(address)), "bind");
    checked(listen(line, 1), "listen");
    const int listener = line;
    line = checked(accept(listener, nullptr, nullptr), "accept");
    close(listener);
  } else {
    // The other side may not listen yet.
    constexpr int patience_ms = 5000;
    for (int waited = 0; connect(line, generic, sizeof(address)) != 0; ++waited) {
      if (waited == patience_ms) throw std::system_error(errno, std::generic_category(), "connect");
      close(line);
      usleep(1000);
      line = checked(socket(AF_INET, SOCK_STREAM, 0), "socket");
    }
  }
  const int yes = 1;
  checked(setsockopt(line, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof(yes)), "TCP_NODELAY");
  checked(fcntl(line, F_SETFL, O_NONBLOCK), "O_NONBLOCK");
  return line;
}

// One call moves at most so much: with more, what is under way falls out of the caches.
constexpr std::size_t most_at_once = std::size_t{64} << 10U;

// Sends and receives as many bytes as the arrays hold, and never sleeps.
void exchange(int line, const std::vector<char>& out, std::vector<char>& in) {
  std::size_t sent = 0;
  std::size_t received = 0;
  while (sent < out.size() || received < in.size()) {
    if (sent < out.size()) {
      const std::size_t part = std::min(out.size() - sent, most_at_once);
      const ssize_t count = send(line, out.data() + sent, part, MSG_NOSIGNAL);
      if (count < 0 && errno != EAGAIN) checked(count, "send");
      if (count > 0) sent += static_cast<std::size_t>(count);
    }
    if (received < in.size()) {
      const std::size_t part = std::min(in.size() - received, most_at_once);
      const ssize_t count = recv(line, in.data() + received, part, 0);
      if (count == 0) throw std::runtime_error("the other side has ended");
      if (count < 0 && errno != EAGAIN) checked(count, "recv");
      if (count > 0) received += static_cast<std::size_t>(count);
    }
  }
}

double median_seconds(int line, std::size_t bytes) {
  using Clock = std::chrono::steady_clock;
  const std::vector<char> out(bytes, 1);
  std::vector<char> in(bytes);
  constexpr std::size_t total = std::size_t{1} << 30U;
  const std::size_t repetitions = std::clamp<std::size_t>(total / bytes, 10, 200);
  std::vector<double> seconds;
  exchange(line, out, in);  // pages and windows
  for (std::size_t i = 0; i < repetitions; ++i) {
    const auto began = Clock::now();
    exchange(line, out, in);
    seconds.push_back(std::chrono::duration<double>(Clock::now() - began).count());
  }
  const auto middle = seconds.begin() + static_cast<std::ptrdiff_t>(seconds.size() / 2);
  std::nth_element(seconds.begin(), middle, seconds.end());
  return *middle;
}

int run(const std::vector<std::string>& words) {
  if (words.size() < 4 || (words[0] != "listen" && words[0] != "connect")) {
    std::fprintf(stderr, "write: tcp-stream listen|connect ADDRESS PORT BYTES...\n");
    return 2;
  }
  const bool listens = words[0] == "listen";
  const int line = meet(listens, address_of(words[1], words[2]));
  if (!listens) std::printf("%12s %12s %8s\n", "bytes", "time us", "GB/s");
  for (std::size_t i = 3; i < words.size(); ++i) {
    const std::size_t bytes = std::stoull(words[i]);
    const double seconds = median_seconds(line, bytes);
    if (listens) continue;
    std::printf("%12zu %12.1f %8.3f\n", bytes, seconds * 1e6,
                static_cast<double>(bytes) / seconds / 1e9);
  }
  close(line);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run({argv + 1, argv + argc});
  } catch (const std::exception& error) {
    std::fprintf(stderr, "tcp-stream: %s\n", error.what());
    return 1;
  }
}
