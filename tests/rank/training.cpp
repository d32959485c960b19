#include <cmath>
#include <cstddef>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <string>
#include <vector>

#include <rondo/train/experiment.hpp>
#include <rondo/transport/world.hpp>

#include "modes.hpp"
#include "trainer/trainer.hpp"

namespace rondo::test {
namespace {

train::Experiment experiment() {
  train::Experiment experiment;
  experiment.data.name = "synthetic";
  experiment.data.training = 40;
  experiment.data.test = 2;
  experiment.model.name = "lenet5";
  experiment.train.global_batch = 2;
  experiment.train.max_steps = 20;
  experiment.optimizer.learning_rate = 0.05;
  return experiment;
}

std::vector<float> read_dump(const std::filesystem::path& file) {
  std::ifstream stream(file, std::ios::binary);
  const std::vector<char> bytes((std::istreambuf_iterator<char>(stream)), {});
  if (bytes.empty()) throw std::runtime_error(file.string() + " is missing or empty");
  std::vector<float> numbers(bytes.size() / sizeof(float));
  __builtin_memcpy(numbers.data(), bytes.data(), numbers.size() * sizeof(float));
  return numbers;
}

}  // namespace

int train_and_dump(transport::World& world, const std::filesystem::path& file) {
  train::RunLog log({}, world.rank());
  train::Trainer trainer(world, train::prepare_run(world, experiment()), {}, log);
  trainer.join();
  while (!trainer.done()) trainer.run_epoch();
  trainer.finish();
  std::printf("rank %d of %d has trained for %d steps\n", world.rank(), world.size(),
              static_cast<int>(trainer.summary("completed").steps));
  if (world.rank() != 0) return 0;
  const auto parameters = std::as_bytes(trainer.parameters());
  std::ofstream stream(file, std::ios::binary);
  stream.write(reinterpret_cast<const char*>(parameters.data()),
               static_cast<std::streamsize>(parameters.size()));
  return stream.flush() ? 0 : 1;
}

int compare_dumps(const std::filesystem::path& one, const std::filesystem::path& other,
                  double tolerance) {
  const std::vector<float> a = read_dump(one);
  const std::vector<float> b = read_dump(other);
  if (a.size() != b.size()) throw std::runtime_error("the files hold different models");
  double difference = 0.0;
  double norm = 0.0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    difference += std::pow(static_cast<double>(a[i]) - static_cast<double>(b[i]), 2);
    norm += std::pow(static_cast<double>(b[i]), 2);
  }
  const double relative = std::sqrt(difference / norm);
  std::printf("%zu parameters, relative difference %.3g\n", a.size(), relative);
  return relative <= tolerance ? 0 : 1;  // a NaN is a difference
}

}  // namespace rondo::test
