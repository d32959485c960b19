// A program of somebody else's that trains: all that it names of Rondo is rondo-train.

#include <cstdio>

#include <rondo/train/experiment.hpp>
#include <rondo/train/trainer.hpp>
#include <rondo/transport/world.hpp>

int main() {
  const auto experiment = rondo::train::parse_experiment(
      "data.name = 'synthetic'\n"
      "data.training = 32\n"
      "data.test = 32\n"
      "model.name = 'lenet5'\n"
      "train.global_batch = 32\n"
      "train.epochs = 1\n",
      "this program");
  auto world = rondo::transport::World::attach();
  const auto metrics = rondo::train::train(world, experiment, {});
  std::printf("trained %lld epoch(s)\n", static_cast<long long>(metrics.epoch));
  return metrics.epoch == 1 ? 0 : 1;
}
