// Trains a model of one's own with any update scheme: librondo-sync without librondo-train.
//
//   tiny_model SCHEME [MS...]              ranks are threads: one per number, else four
//   rondo run -n 4 -- tiny_model SCHEME [MS...]
//
// SCHEME is synchronous, sharded, lazy, k_step, hierarchical, cyclic or cyclic_fixed. Each MS is
// how many milliseconds a mini-batch of that rank takes at least, as if its model were larger:
//
//   tiny_model cyclic 20 20 20 80
//
// The model is linear: it learns the weights that made the answers to random questions.

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <memory>
#include <memory_resource>
#include <random>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include <rondo/sync/cyclic.hpp>
#include <rondo/sync/hierarchical.hpp>
#include <rondo/sync/k_step.hpp>
#include <rondo/sync/lazy.hpp>
#include <rondo/sync/optimizer.hpp>
#include <rondo/sync/replica.hpp>
#include <rondo/sync/sharded.hpp>
#include <rondo/sync/synchronous.hpp>
#include <rondo/transport/communicator.hpp>
#include <rondo/transport/launcher.hpp>
#include <rondo/transport/world.hpp>

namespace {

using namespace rondo;
using Clock = std::chrono::steady_clock;

constexpr std::size_t features = 64;  // and a bias
constexpr std::size_t batch = 16;     // samples of a mini-batch of one rank
constexpr int rounds = 100;           // mini-batches per rank, if all are equally fast

/// y = w x + b: the parameters and gradients of one rank, and where its samples come from.
struct Model {
  explicit Model(transport::World& world)
      : parameters(features + 1, 0.0F, &world.arena()),
        gradients(features + 1, 0.0F, &world.arena()),
        random(static_cast<unsigned>(world.rank())) {}

  /// The weights to be found.
  static float truth(std::size_t i) { return i % 2 == 0 ? 1.0F : -1.0F; }

  [[nodiscard]] double error() const {
    double sum = 0.0;
    for (std::size_t i = 0; i <= features; ++i) {
      const double difference = static_cast<double>(parameters[i] - truth(i));
      sum += difference * difference;
    }
    return sum / static_cast<double>(features + 1);
  }

  /// The sum of the gradients of `batch` new samples.
  void compute_gradients() {
    gradients.assign(features + 1, 0.0F);
    std::array<float, features + 1> x{};
    std::normal_distribution<float> normal;
    for (std::size_t sample = 0; sample < batch; ++sample) {
      float difference = 0.0F;
      for (std::size_t i = 0; i <= features; ++i) {
        x[i] = i < features ? normal(random) : 1.0F;
        difference += (parameters[i] - truth(i)) * x[i];
      }
      for (std::size_t i = 0; i <= features; ++i) gradients[i] += difference * x[i];
    }
  }

  std::pmr::vector<float> parameters;
  std::pmr::vector<float> gradients;
  std::mt19937 random;
};

/// Two layers, updated over all ranks.
sync::Replica describe(transport::World& world, Model& model) {
  const sync::Groups all{nullptr, &world.communicator(), &world.communicator()};
  return {&world,
          model.parameters,
          model.gradients,
          {},
          {{"weights", 0, features, all}, {"bias", features, 1, all}}};
}

std::unique_ptr<sync::UpdateScheme> make_scheme(std::string_view name, const sync::Replica& replica,
                                                transport::Communicator& pair) {
  const std::shared_ptr<sync::Optimizer> sgd = sync::make_sgd(features + 1, {.momentum = 0.5F});
  const auto ranks = replica.world->size();
  const std::int64_t samples = std::int64_t{rounds} * ranks * static_cast<std::int64_t>(batch);
  if (name == "synchronous") return sync::make_synchronous(replica, sgd);
  if (name == "sharded") return sync::make_sharded(replica, sgd);
  if (name == "lazy")
    return sync::make_lazy(replica, sgd, {.lazy_layers = 1, .probes = {{0, features}}});
  if (name == "k_step") return sync::make_k_step(replica, sgd, {.period = 4});
  if (name == "hierarchical") {
    return sync::make_hierarchical(replica, sgd,
                                   {.period = 4, .levels = {{.period = 2, .group = &pair}}});
  }
  // A push is one step along all that it holds: without a cap it may be hundreds of mini-batches.
  if (name == "cyclic") {
    return sync::make_cyclic(replica, sgd, {.minibatch_cap = 8, .total_samples = samples});
  }
  if (name == "cyclic_fixed") {
    return sync::make_cyclic(replica, sgd, {.delay = sync::Delay::fixed, .total_samples = samples});
  }
  throw std::invalid_argument("no scheme is named " + std::string(name));
}

/// Waits until a mini-batch has taken its time, as a training loop would compute: now and then it
/// lets the transport go on.
void take(Clock::time_point end, transport::World& world) {
  while (Clock::now() < end) {
    world.progress();
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

/// One rank. Its number of mini-batches is its own where the scheme says so, see Pace.
void train(transport::World& world, std::string_view name, std::chrono::milliseconds duration) {
  Model model(world);
  transport::Communicator pair = world.communicator().split(world.rank() / 2);
  const auto scheme = make_scheme(name, describe(world, model), pair);
  const auto ranks = static_cast<std::size_t>(world.size());
  world.communicator().barrier().wait();
  const auto begin = Clock::now();
  std::int64_t step = 0;
  const auto goes_on = [&] {
    const auto pace = scheme->pace();
    return pace ? !pace->parked : step < rounds;
  };
  for (; goes_on(); ++step) {
    const auto end = Clock::now() + duration;
    scheme->begin({.index = step,
                   .local_samples = batch,
                   .global_samples = batch * ranks,
                   .learning_rate = 0.02});
    for (const std::size_t layer : {0U, 1U}) scheme->make_ready(layer);
    model.compute_gradients();
    take(end, world);
    for (const std::size_t layer : {1U, 0U}) scheme->gradients_final(layer);
    scheme->finish();
  }
  const auto pace = scheme->pace();
  const auto samples = pace ? pace->samples : step * static_cast<std::int64_t>(batch * ranks);
  const double seconds = std::chrono::duration<double>(Clock::now() - begin).count();
  scheme->flush();
  if (world.rank() == 0) {
    std::printf("%.*s: %lld samples in %.2f s, %.0f samples/s, mean squared error %.2g\n",
                static_cast<int>(name.size()), name.data(), static_cast<long long>(samples),
                seconds, static_cast<double>(samples) / seconds, model.error());
  }
}

/// A thread for each duration. Returns what the program shall return.
int train_threads(std::string_view name, const std::vector<std::chrono::milliseconds>& durations) {
  std::atomic<int> result{0};
  auto worlds = transport::World::make_threads(static_cast<int>(durations.size()));
  std::vector<std::thread> threads;
  for (transport::World& world : worlds) {
    threads.emplace_back([name, &durations, &result, mine = std::move(world)]() mutable {
      const auto rank = static_cast<std::size_t>(mine.rank());
      try {
        train(mine, name, durations[rank]);
      } catch (const std::exception& error) {
        std::fprintf(stderr, "rank %zu: %s\n", rank, error.what());
        mine.abort(error.what());
        result = 1;
      }
    });
  }
  worlds.clear();
  for (std::thread& thread : threads) thread.join();
  return result;
}

}  // namespace

int main(int count, char** arguments) {
  if (count < 2) {
    std::fprintf(stderr, "tiny_model SCHEME [MS...]\n");
    return 1;
  }
  std::vector<std::chrono::milliseconds> durations;
  for (int i = 2; i < count; ++i) durations.emplace_back(std::atoi(arguments[i]));
  try {
    if (!transport::launched()) {
      if (durations.empty()) durations.resize(4);
      return train_threads(arguments[1], durations);
    }
    transport::World world = transport::World::attach();
    durations.resize(static_cast<std::size_t>(world.size()));
    train(world, arguments[1], durations[static_cast<std::size_t>(world.rank())]);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
