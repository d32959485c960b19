// The cost of a message between two processes of one node, each bound to a CPU: one-way time of
// small messages (half of a round trip), and bandwidth of large ones. To be compared, in turn, with
//
//   UCX_TLS=posix,self ucx_perftest -t ucp_am_lat -s 8 -n 200000   (server bound to CPU 1,
//                                                                   client to CPU 0)
//
// Prints, for each size, the minimum and the median over the repetitions.

#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <span>
#include <vector>

#include "memory/memory.hpp"
#include "message/link.hpp"

namespace rondo::transport {
namespace {

using Clock = std::chrono::steady_clock;
using Memories = std::array<std::shared_ptr<shm::RankMemory>, 2>;

constexpr std::size_t largest = std::size_t{64} << 20U;
constexpr int repetitions = 15;

void bind_to(int cpu) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(cpu, &set);
  if (::sched_setaffinity(0, sizeof set, &set) != 0) std::perror("sched_setaffinity");
}

/// One of the two processes.
class Player {
 public:
  Player(int rank, const Memories& memories)
      : peer_(1 - rank), link_(open_shm_link(rank, {memories[0].get(), memories[1].get()}, true)) {
    bind_to(rank);
  }

  void send(std::span<const std::byte> data) {
    Transfer transfer;
    link_->post_send(peer_, 1, data, transfer);
    finish(transfer);
  }
  void receive(std::span<std::byte> data) {
    Transfer transfer;
    link_->post_recv(peer_, 1, data, transfer);
    finish(transfer);
  }

 private:
  void finish(const Transfer& transfer) {
    while (transfer.pending()) link_->progress();
    if (!transfer.failed()) return;
    std::fprintf(stderr, "%s\n", link_->error_text(transfer).c_str());
    std::_Exit(1);
  }

  int peer_;
  std::unique_ptr<Link> link_;
};

/// Microseconds for each of `rounds` round trips.
double ping(Player& player, int rounds, std::span<std::byte> data) {
  const auto begin = Clock::now();
  for (int i = 0; i < rounds; ++i) {
    player.send(data);
    player.receive(data);
  }
  return std::chrono::duration<double, std::micro>(Clock::now() - begin).count() / rounds;
}

void pong(Player& player, int rounds, std::span<std::byte> data) {
  for (int i = 0; i < rounds; ++i) {
    player.receive(data);
    player.send(data);
  }
}

int rounds_for(std::size_t bytes) {
  return static_cast<int>(
      std::clamp<std::size_t>((std::size_t{64} << 20U) / (bytes + 1), 2, 50000));
}

void play(Player& player, int rank, const char* name, std::span<std::byte> memory) {
  for (std::size_t bytes = 8; bytes <= largest; bytes *= 8) {
    const auto data = memory.first(bytes);
    std::vector<double> times;
    for (int r = 0; r < repetitions; ++r) {
      if (rank == 0) {
        times.push_back(ping(player, rounds_for(bytes), data) / 2);
      } else {
        pong(player, rounds_for(bytes), data);
      }
    }
    if (rank != 0) continue;
    std::ranges::sort(times);
    const double median = times[times.size() / 2];
    std::printf("%-9s %10zu bytes  min %11.3f us  median %11.3f us  %8.2f GB/s\n", name, bytes,
                times.front(), median, static_cast<double>(bytes) / median / 1e3);
  }
}

int main_of(int rank, const Memories& memories) {
  Player player(rank, memories);
  std::vector<std::byte> ordinary(largest);
  play(player, rank, "ordinary", ordinary);
  auto& arena = memories[static_cast<std::size_t>(rank)]->arena();
  arena.grow(largest);
  play(player, rank, "arena", std::span(arena.base(), largest));
  return 0;
}

}  // namespace
}  // namespace rondo::transport

int main() {
  using rondo::transport::Memories;
  namespace shm = rondo::transport::shm;
  const auto reserve = shm::Reserve::of(2);
  const Memories memories{shm::RankMemory::create(reserve, 1), shm::RankMemory::create(reserve, 2)};
  const pid_t peer = ::fork();
  if (peer == 0) std::_Exit(rondo::transport::main_of(1, memories));
  const int status = rondo::transport::main_of(0, memories);
  ::waitpid(peer, nullptr, 0);
  return status;
}
