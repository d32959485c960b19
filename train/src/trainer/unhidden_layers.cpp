#include "trainer/unhidden_layers.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <limits>
#include <vector>

#include <rondo/sync/lazy.hpp>
#include <rondo/transport/communicator.hpp>
#include <rondo/transport/world.hpp>

namespace rondo::train {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int repetitions = 4;  // the first of which warms up

double seconds_between(Clock::time_point earlier, Clock::time_point later) {
  return std::chrono::duration<double>(later - earlier).count();
}

/// Notes when the gradients of each group are final.
class Stopwatch final : public StepObserver {
 public:
  explicit Stopwatch(std::size_t groups) : final_(groups) {}

  void make_ready(std::size_t /*group*/) override {}
  void gradients_final(std::size_t group) override { final_[group] = Clock::now(); }
  void between_layers() override {}

  [[nodiscard]] Clock::time_point final_at(std::size_t group) const { return final_[group]; }

 private:
  std::vector<Clock::time_point> final_;
};

/// By group: the shortest time from its gradients being final to the end of backward.
std::vector<double> backward_left(Executor& executor, const Batch& batch, std::size_t groups) {
  std::vector<double> left(groups, std::numeric_limits<double>::max());
  Stopwatch stopwatch(groups);
  for (int i = 0; i < repetitions; ++i) {
    static_cast<void>(executor.train(batch, stopwatch));
    const Clock::time_point end = Clock::now();
    for (std::size_t group = 0; i > 0 && group < groups; ++group) {
      left[group] = std::min(left[group], seconds_between(stopwatch.final_at(group), end));
    }
  }
  return left;
}

/// By group: the shortest time of its allreduce, once all ranks are there.
std::vector<double> reduction_times(transport::World& world, std::span<const sync::Layer> layers,
                                    std::span<float> gradients) {
  transport::Communicator& all = world.communicator();
  std::vector<double> times(layers.size(), std::numeric_limits<double>::max());
  for (int i = 0; i < repetitions; ++i) {
    for (std::size_t group = 0; group < times.size(); ++group) {
      const sync::Layer& layer = layers[group];
      all.barrier().wait();
      const Clock::time_point began = Clock::now();
      layer.groups.slice->allreduce(gradients.subspan(layer.offset, layer.size)).wait();
      if (i > 0) times[group] = std::min(times[group], seconds_between(began, Clock::now()));
    }
  }
  return times;
}

}  // namespace

std::size_t measure_unhidden_layers(transport::World& world, Executor& executor, const Batch& batch,
                                    std::span<const sync::Layer> layers, const ModelState& state) {
  const std::vector<float> statistics(state.statistics.begin(), state.statistics.end());
  const std::vector<double> left = backward_left(executor, batch, layers.size());
  std::ranges::copy(statistics, state.statistics.begin());
  std::ranges::fill(state.gradients, 0.0F);
  const std::vector<double> reduction = reduction_times(world, layers, state.gradients);
  std::array unhidden{static_cast<std::int64_t>(sync::count_unhidden_layers(left, reduction))};
  world.communicator().broadcast(std::span<std::int64_t>(unhidden), 0).wait();
  return static_cast<std::size_t>(unhidden[0]);
}

}  // namespace rondo::train
