// How fast one link is between two processes, beside a plain TCP connection:
//   link-benchmark PLUGIN PROVIDER DEVICE [NAMESPACE NAMESPACE ADDRESS]
//   link-benchmark ucx tcp lo              compare: ucx_perftest -t tag_lat with UCX_TLS=tcp
//   link-benchmark ucx posix,self ''
//   link-benchmark ucx tcp eth0 h0 h1 10.88.0.1    in two network namespaces, as root
// Columns: bytes; microseconds one way of a ping-pong; microseconds, and GB/s each way, of
// sending and receiving at once; the same of the TCP connection. Medians of the first process.

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "links/plugin.hpp"

namespace {

using rondo::transport::Link;
using rondo::transport::Transfer;
using Clock = std::chrono::steady_clock;

void check(bool holds, const char* what) {
  if (!holds) throw std::runtime_error(what);
}

struct Setting {
  std::string plugin;
  std::string provider;
  std::string device;
  std::array<std::string, 2> namespaces;
  std::string address = "127.0.0.1";
};

void enter(const std::string& name) {
  if (name.empty()) return;
  const int file = ::open(("/run/netns/" + name).c_str(), O_RDONLY);
  check(file >= 0 && ::setns(file, CLONE_NEWNET) == 0, "cannot enter the namespace");
  ::close(file);
}

void pin(int rank) {
  cpu_set_t cpus;
  CPU_ZERO(&cpus);
  CPU_SET(static_cast<std::size_t>(rank), &cpus);
  ::sched_setaffinity(0, sizeof cpus, &cpus);
}

std::string swap_texts(int channel, const std::string& mine) {
  const std::uint64_t bytes = mine.size();
  check(::write(channel, &bytes, sizeof bytes) == sizeof bytes, "the channel broke");
  check(::write(channel, mine.data(), bytes) == static_cast<ssize_t>(bytes), "the channel broke");
  std::uint64_t their_bytes = 0;
  check(::recv(channel, &their_bytes, sizeof their_bytes, MSG_WAITALL) == sizeof their_bytes,
        "the channel broke");
  std::string theirs(their_bytes, '\0');
  check(
      ::recv(channel, theirs.data(), their_bytes, MSG_WAITALL) == static_cast<ssize_t>(their_bytes),
      "the channel broke");
  return theirs;
}

// Microseconds of one call: the median over batches, each long enough for the clock.
double time_of(std::size_t calls, const std::function<void()>& call) {
  const std::size_t batch = std::max<std::size_t>(calls / 50, 1);
  std::vector<double> times;
  for (std::size_t done = 0; done < calls; done += batch) {
    const auto start = Clock::now();
    for (std::size_t i = 0; i < batch; ++i) call();
    const std::chrono::duration<double, std::micro> taken = Clock::now() - start;
    times.push_back(taken.count() / static_cast<double>(batch));
  }
  const auto middle = times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2);
  std::ranges::nth_element(times, middle);
  return *middle;
}

class Pair {
 public:
  Pair(Link& link, int rank) : link_(&link), peer_(1 - rank) {}

  void both(std::span<const std::byte> out, std::span<std::byte> in) {
    link_->post_recv(peer_, 2, in, receiving_);
    link_->post_send(peer_, 2, out, sending_);
    finish(sending_);
    finish(receiving_);
  }
  void send(std::span<const std::byte> out) {
    link_->post_send(peer_, 1, out, sending_);
    finish(sending_);
  }
  void receive(std::span<std::byte> in) {
    link_->post_recv(peer_, 1, in, receiving_);
    finish(receiving_);
  }

 private:
  void finish(const Transfer& transfer) {
    while (transfer.pending()) link_->progress();
    if (!transfer.done()) throw std::runtime_error(link_->error_text(transfer));
  }
  Link* link_;
  int peer_;
  Transfer sending_;
  Transfer receiving_;
};

int connect_stream(const Setting& setting, int rank, int channel) {
  const int stream = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  ::inet_pton(AF_INET, setting.address.c_str(), &address.sin_addr);
  auto* raw = reinterpret_cast<sockaddr*>(&address);
  socklen_t length = sizeof address;
  int connected = stream;
  if (rank == 0) {
    check(::bind(stream, raw, length) == 0 && ::listen(stream, 1) == 0, "cannot listen");
    ::getsockname(stream, raw, &length);
    swap_texts(channel, std::to_string(ntohs(address.sin_port)));
    connected = ::accept(stream, nullptr, nullptr);
    ::close(stream);
  } else {
    address.sin_port = htons(static_cast<std::uint16_t>(std::stoi(swap_texts(channel, "-"))));
    check(::connect(stream, raw, length) == 0, "cannot connect");
  }
  const int on = 1;
  ::setsockopt(connected, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  ::fcntl(connected, F_SETFL, O_NONBLOCK);
  return connected;
}

void stream_both(int stream, std::span<const std::byte> out, std::span<std::byte> in) {
  while (!out.empty() || !in.empty()) {
    if (!out.empty()) {
      const ssize_t sent = ::send(stream, out.data(), out.size(), MSG_NOSIGNAL);
      if (sent > 0) out = out.subspan(static_cast<std::size_t>(sent));
    }
    if (!in.empty()) {
      const ssize_t received = ::recv(stream, in.data(), in.size(), 0);
      check(received != 0, "the stream ended");
      if (received > 0) in = in.subspan(static_cast<std::size_t>(received));
    }
  }
}

void measure(Link& link, int rank, int stream, std::size_t bytes) {
  Pair pair(link, rank);
  std::vector<std::byte> out(bytes, std::byte{1});
  std::vector<std::byte> in(bytes);
  const std::size_t calls =
      std::clamp<std::size_t>((std::size_t{64} << 20U) / (bytes + 1), 7, 5'000);
  const std::function<void()> ping = [&] {
    if (rank == 0) pair.send(out);
    pair.receive(in);
    if (rank == 1) pair.send(out);
  };
  time_of(std::max<std::size_t>(calls / 10, 2), ping);
  const double one_way = time_of(calls, ping) / 2;
  const double both = time_of(calls, [&] { pair.both(out, in); });
  const double plain = time_of(calls, [&] { stream_both(stream, out, in); });
  if (rank != 0) return;
  const auto size = static_cast<double>(bytes);
  std::printf("%10zu %10.2f %10.2f %8.3f %10.2f %8.3f %6.2f\n", bytes, one_way, both,
              size / both / 1e3, plain, size / plain / 1e3, plain / both);
  std::fflush(stdout);
}

void run(const Setting& setting, int rank, int channel) {
  pin(rank);
  enter(setting.namespaces[static_cast<std::size_t>(rank)]);
  rondo::transport::LinkOptions options;
  options.rank = rank;
  options.size = 2;
  options.provider = setting.provider;
  options.device = setting.device;
  const auto link = rondo::transport::open_plugin(setting.plugin, options);
  link->connect(1 - rank, swap_texts(channel, link->address()));
  const int stream = connect_stream(setting, rank, channel);
  if (rank == 0) {
    std::printf("%s\n%10s %10s %10s %8s %10s %8s %6s\n", link->route().c_str(), "bytes", "one way",
                "both ways", "GB/s", "TCP", "GB/s", "ratio");
  }
  for (std::size_t bytes = 8; bytes <= std::size_t{16} << 20U; bytes *= bytes < 4'096 ? 8 : 4) {
    measure(*link, rank, stream, bytes);
  }
  swap_texts(channel, "done");
}

}  // namespace

int main(int count, char** arguments) {
  if (count != 4 && count != 7) {
    std::fprintf(stderr, "usage: %s PLUGIN PROVIDER DEVICE [NAMESPACE NAMESPACE ADDRESS]\n",
                 arguments[0]);
    return 2;
  }
  Setting setting{.plugin = arguments[1],
                  .provider = arguments[2],
                  .device = arguments[3],
                  .namespaces = {},
                  .address = "127.0.0.1"};
  if (count == 7) {
    setting.namespaces = {arguments[4], arguments[5]};
    setting.address = arguments[6];
  }
  ::setenv("RONDO_PLUGIN_PATH", RONDO_BUILT_PLUGINS, 0);
  int channels[2] = {-1, -1};
  if (::socketpair(AF_UNIX, SOCK_STREAM, 0, channels) != 0) return 1;
  const pid_t child = ::fork();
  const int rank = child == 0 ? 1 : 0;
  ::close(channels[1 - rank]);
  try {
    run(setting, rank, channels[rank]);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "rank %d: %s\n", rank, error.what());
    return 1;
  }
  if (rank == 1) return 0;
  int status = 0;
  ::waitpid(child, &status, 0);
  return status == 0 ? 0 : 1;
}
