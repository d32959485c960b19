// The program's demands on the transport, in one place: options from a configuration, a line on
// stderr for every stall, and the OpenMP threads that the transport may borrow.
//
// Only gcc's OpenMP is the one that oneDNN's kernels use, so builds with another compiler have no
// team: two thread pools would compete for the cores.

#include "world.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <span>
#include <vector>

#include <rondo/transport/communicator.hpp>

#include "say.hpp"

namespace rondo::tools {
namespace {

std::chrono::milliseconds to_milliseconds(double seconds) {
  return std::chrono::duration_cast<std::chrono::milliseconds>(
      std::chrono::duration<double>(seconds));
}

// [transport] in the units of the transport.
transport::FabricOptions fabric_options(const train::Experiment::Transport& section) {
  transport::FabricOptions options;
  options.name = section.fabric;
  options.interface = section.interface;
  options.fake_nodes = static_cast<int>(section.fake_nodes);
  options.injected_latency = std::chrono::duration_cast<std::chrono::nanoseconds>(
      std::chrono::duration<double, std::micro>(section.latency_us));
  options.injected_bytes_per_second = section.bandwidth_gbs * 1e9;
  options.allreduce = section.allreduce;
  return options;
}

// One line on stderr: who waits for whom, and in what.
void report_stall(const transport::Stall& stall) {
  const bool one = stall.missing.size() == 1;
  say("rondo: rank {}: has waited {:.0f} s for rank{} {} in {}\n", stall.rank,
      static_cast<double>(stall.duration.count()) / 1e3, one ? "" : "s",
      fmt::join(stall.missing, ", "), stall.operation);
}

#if defined(_OPENMP)
// Threads of the pool that the kernels use anyway: one index for each.
class OpenMpTeam final : public transport::Team {
 public:
  explicit OpenMpTeam(int threads) noexcept : threads_(threads) {}

  [[nodiscard]] int size() const noexcept override { return threads_; }

  void run(void (*part)(void* context, int index), void* context) override {
#pragma omp parallel for num_threads(threads_) schedule(static, 1)
    for (int index = 0; index < threads_; ++index) part(context, index);
  }

 private:
  int threads_;
};
#endif

}  // namespace

const Choices<transport::Waiting> waitings = {{"auto", transport::Waiting::automatic},
                                              {"spin", transport::Waiting::spin},
                                              {"yield", transport::Waiting::yield},
                                              {"block", transport::Waiting::block}};

transport::WorldOptions world_options() {
  transport::WorldOptions options;
  options.on_stall = report_stall;
  return options;
}

// Seconds and microseconds of the configuration become durations, so that no unit is lost on the
// way.
transport::WorldOptions world_options(const train::Experiment& experiment) {
  transport::WorldOptions options = world_options();
  options.waiting = experiment.transport.wait;
  options.deadline = to_milliseconds(experiment.transport.deadline_seconds);
  options.stall_warning = to_milliseconds(experiment.transport.stall_warning_seconds);
  options.small_bytes = static_cast<std::size_t>(experiment.transport.small_bytes);
  options.fabric = fabric_options(experiment.transport);
  return options;
}

// Its length goes first, because all ranks must agree on the size of a broadcast.
std::string broadcast_text(transport::World& world, const std::string& text) {
  std::array<std::int64_t, 1> length = {static_cast<std::int64_t>(text.size())};
  world.communicator().broadcast(std::span<std::int64_t>(length), 0).wait();
  std::vector<std::uint8_t> bytes(static_cast<std::size_t>(length[0]));
  if (world.rank() == 0) std::ranges::copy(text, bytes.begin());
  world.communicator().broadcast(std::span(bytes), 0).wait();
  return {bytes.begin(), bytes.end()};
}

std::unique_ptr<transport::Team> make_openmp_team([[maybe_unused]] int threads) {
#if defined(_OPENMP)
  // One thread needs no team: the transport works on the calling thread.
  if (threads > 1) return std::make_unique<OpenMpTeam>(threads);
#endif
  return nullptr;
}

}  // namespace rondo::tools
