#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include <rondo/train/model.hpp>
#include <rondo/train/model_benchmark.hpp>
#include <rondo/transport/communicator.hpp>
#include <rondo/transport/world.hpp>

#include "command.hpp"
#include "exit_status.hpp"
#include "launch/environment.hpp"
#include "launch/launch_options.hpp"
#include "launch/launcher.hpp"
#include "launch/self.hpp"

namespace rondo::tools {
namespace {

struct ModelOptions {
  PlacementRequest request = {};
  std::filesystem::path flight_record = {};
  std::string model = {};
  std::string format = "table";
  std::int64_t batch = 64;
  bool primitives = false;
};

// One rank's result; all ranks measure at the same time.
struct Result {
  int ranks = 1;
  int threads = 1;
  std::vector<train::KernelTime> kernels = {};  // empty: a whole step was measured
  double microseconds = 0.0;
  double images_per_second = 0.0;      // of this rank
  double all_images_per_second = 0.0;  // of all ranks together
};

Result measure(transport::World& world, const train::Model& model, const ModelOptions& options) {
  Result result;
  result.ranks = world.size();
  result.threads = std::max(threads_from_environment(), 1);
  world.communicator().barrier().wait();
  if (options.primitives) {
    const auto times = train::measure_primitives(model, options.batch, result.threads);
    result.kernels = times.kernels;
    result.microseconds = times.microseconds();
    result.images_per_second = times.images_per_second();
  } else {
    const auto time = train::measure_step(model, options.batch, result.threads);
    result.microseconds = time.microseconds;
    result.images_per_second = time.images_per_second();
  }
  std::array<double, 1> sum = {result.images_per_second};
  world.communicator().allreduce(std::span<double>(sum)).wait();
  result.all_images_per_second = sum[0];
  return result;
}

void print_json(const Result& result, const ModelOptions& options) {
  auto kernels = nlohmann::ordered_json::array();
  for (const train::KernelTime& kernel : result.kernels) {
    kernels.push_back({{"layer", kernel.layer},
                       {"direction", kernel.direction},
                       {"implementation", kernel.implementation},
                       {"microseconds", kernel.microseconds},
                       {"gflops", kernel.gflops}});
  }
  nlohmann::ordered_json object = {{"model", options.model},
                                   {"batch", options.batch},
                                   {"ranks", result.ranks},
                                   {"threads", result.threads},
                                   {"microseconds", result.microseconds},
                                   {"images_per_second", result.images_per_second},
                                   {"all_images_per_second", result.all_images_per_second}};
  if (options.primitives) object["kernels"] = kernels;
  fmt::print("{}\n", object.dump(2));
}

void print_table(const Result& result, const ModelOptions& options) {
  if (options.primitives) {
    fmt::print("{:<28}{:<18}{:>10}{:>10}  {}\n", "layer", "direction", "us", "GFLOP/s", "kernel");
  }
  for (const train::KernelTime& kernel : result.kernels) {
    fmt::print("{:<28}{:<18}{:>10.1f}{:>10.1f}  {}\n", kernel.layer, kernel.direction,
               kernel.microseconds, kernel.gflops, kernel.implementation);
  }
  fmt::print("{} of {}, batch {} per rank, {} rank(s) x {} thread(s): {:.1f} us, {:.0f} images/s\n",
             options.primitives ? "sum of the kernels" : "training step", options.model,
             options.batch, result.ranks, result.threads, result.microseconds,
             result.all_images_per_second);
}

int measure_as_rank(const ModelOptions& options, const train::Model& model) {
  transport::World world = transport::World::attach();
  const Result result = measure(world, model, options);
  if (world.rank() != 0) return exit_done;
  if (options.format == "json") {
    print_json(result, options);
  } else {
    print_table(result, options);
  }
  return exit_done;
}

train::Model model_of(const ModelOptions& options) {
  try {
    return train::make_model(options.model);
  } catch (const std::invalid_argument& error) {
    throw UsageError(error.what());
  }
}

int run_bench(ModelOptions options, const std::vector<std::string>& arguments) {
  const train::Model model = model_of(options);
  if (is_rank()) {
    refuse_other_size(options.request);
    return measure_as_rank(options, model);
  }
  if (options.request.ranks == 0) options.request.ranks = 1;
  std::vector<std::string> command = {own_path()};
  command.insert(command.end(), arguments.begin(), arguments.end());
  return launch({command, place(read_machine(), options.request), {}, options.flight_record});
}

}  // namespace

void add_bench_model(CLI::App& bench, const std::vector<std::string>& arguments, int& status) {
  CLI::App* command = bench.add_subcommand("model", "Time a model's training step, or its kernels");
  auto options = std::make_shared<ModelOptions>();
  command->add_option("name", options->model, "lenet5, resnet8, resnet20, ...")
      ->required()
      ->type_name("MODEL");
  command->add_flag("--primitives", options->primitives,
                    "Time each kernel alone: their sum is what a step is made of at the least");
  command->add_option("-b,--batch", options->batch, "Images of one rank")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str()
      ->type_name("B");
  command->add_option("--format", options->format, "table, or json: one object")
      ->check(CLI::IsMember({"table", "json"}))
      ->capture_default_str()
      ->type_name("FORMAT");
  add_launch_options(*command, options->request);
  add_flight_record_option(*command, options->flight_record, "nowhere");
  command->footer("One rank unless -n says otherwise; several measure at the same time.");
  command->callback([&arguments, &status, options] { status = run_bench(*options, arguments); });
}

}  // namespace rondo::tools
