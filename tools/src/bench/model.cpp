// `rondo bench model`: how long a model's training step takes on this machine, or each of its
// kernels alone. Several ranks measure at the same time, because they share memory and caches.
//
// The library measures (rondo/train/model_benchmark.hpp); this file is the command around it.

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <rondo/tensor/data_type.hpp>
#include <rondo/train/model.hpp>
#include <rondo/train/model_benchmark.hpp>
#include <rondo/transport/communicator.hpp>
#include <rondo/transport/world.hpp>

#include "failure.hpp"
#include "launch/environment.hpp"
#include "launch/joined_rank.hpp"
#include "launch/launcher.hpp"
#include "options.hpp"
#include "table.hpp"
#include "world.hpp"

namespace rondo::tools {
namespace {

// The options of the command line.
struct ModelOptions {
  LaunchRequest launch = {};
  std::string model = {};
  Format format = Format::text;
  std::int64_t batch = 64;
  tensor::DataType precision = tensor::DataType::f32;
  bool primitives = false;
};

const Choices<tensor::DataType> precisions = {{"fp32", tensor::DataType::f32},
                                              {"bf16", tensor::DataType::bf16}};

// One rank's result; all ranks measure at the same time.
struct Result {
  int ranks = 1;
  int threads = 1;
  std::vector<train::KernelTime> kernels = {};  // empty: a whole step was measured
  double microseconds = 0.0;
  double images_per_second = 0.0;      // of this rank
  double all_images_per_second = 0.0;  // of all ranks together
};

// The barrier makes all ranks begin together; the sum over ranks is what the machine achieves.
Result measure_training(JoinedRank& self, const train::Model& model, const ModelOptions& options) {
  transport::World& world = self.world;
  Result result;
  result.ranks = world.size();
  result.threads = self.threads;
  const train::UpdateBenchmark update{.team = self.team.get()};
  world.communicator().barrier().wait();
  if (options.primitives) {
    const auto times = train::measure_primitives(
        model, options.batch, result.threads, options.precision, train::KernelCaches::warm, update);
    result.kernels = times.kernels;
    result.microseconds = times.microseconds();
    result.images_per_second = times.images_per_second();
  } else {
    const auto time =
        train::measure_step(model, options.batch, result.threads, options.precision, update);
    result.microseconds = time.microseconds;
    result.images_per_second = time.images_per_second();
  }
  std::array<double, 1> sum = {result.images_per_second};
  // Ranks of one machine slow each other down, which the sum shows and a single rank's rate does
  // not.
  world.communicator().allreduce(std::span<double>(sum)).wait();
  result.all_images_per_second = sum[0];
  return result;
}

// People read the name of the implementation last, because it is long.
Table kernels_of(const Result& result) {
  return TableOf(result.kernels)
      .add({"layer", "layer", Align::left}, &train::KernelTime::layer)
      .add({"direction", "direction", Align::left}, &train::KernelTime::direction)
      .add({.name = "implementation"}, &train::KernelTime::implementation)
      .add({.name = "microseconds", .heading = "us", .decimals = 1},
           &train::KernelTime::microseconds)
      .add({.name = "gflops", .heading = "GFLOP/s", .decimals = 1}, &train::KernelTime::gflops)
      .add({.heading = "kernel", .align = Align::left}, &train::KernelTime::implementation);
}

// One object; "kernels" is there only if they were asked for.
std::string as_json(const Result& result, const ModelOptions& options) {
  TableOf object(std::span(&result, 1));
  object.add({.name = "model"}, [&](const Result&) { return options.model; })
      .add({.name = "batch"}, [&](const Result&) { return options.batch; })
      .add({.name = "precision"},
           [&](const Result&) { return name_of(precisions, options.precision); })
      .add({.name = "ranks"}, &Result::ranks)
      .add({.name = "threads"}, &Result::threads)
      .add({.name = "microseconds"}, &Result::microseconds)
      .add({.name = "images_per_second"}, &Result::images_per_second)
      .add({.name = "all_images_per_second"}, &Result::all_images_per_second);
  if (options.primitives) object.add({.name = "kernels"}, kernels_of);
  return object.json_object();
}

// The sum line says all that the numbers depend on, so that it can be quoted alone.
std::string as_text(const Result& result, const ModelOptions& options) {
  return fmt::format(
      "{}{} of {} in {}, batch {} per rank, {} rank(s) x {} thread(s): {:.1f} us, {:.0f} "
      "images/s\n",
      options.primitives ? kernels_of(result).text() : "",
      options.primitives ? "sum of the kernels" : "training step", options.model,
      name_of(precisions, options.precision), options.batch, result.ranks, result.threads,
      result.microseconds, result.all_images_per_second);
}

int measure_as_rank(const ModelOptions& options, const train::Model& model) {
  transport::WorldOptions wanted = world_options();
  wanted.dump_folder = own_records_in(options.launch.flight_record);
  JoinedRank self = join_as_rank(std::move(wanted), options.launch.placement);
  // Every rank measures, and rank 0 reports its own times with the sum of all rates.
  const Result result = measure_training(self, model, options);
  if (self.world.rank() != 0) return exit_done;
  const bool json = options.format == Format::json;
  fmt::print("{}", json ? as_json(result, options) : as_text(result, options));
  return exit_done;
}

// A name that does not exist is refused before ranks start.
train::Model model_of(const ModelOptions& options) {
  try {
    return train::make_model(options.model);
  } catch (const std::invalid_argument& error) {
    throw UsageError(error.what());
  }
}

// As early as a mistake in the command line: on this machine it is one.
void refuse_precision(tensor::DataType precision) {
  try {
    tensor::require_computable(precision);
  } catch (const std::runtime_error& error) {
    throw UsageError(std::string("--precision: ") + error.what());
  }
}

int run_model(const ModelOptions& options, const CommandLine& line) {
  let_speak(Speaker::first_of_host);
  // Launcher and ranks both check: a rank may have been started by another launcher.
  const train::Model model = model_of(options);
  refuse_precision(options.precision);
  return launch_or_be_rank(line, options.launch, 1,
                           [&] { return measure_as_rank(options, model); });
}

}  // namespace

void add_bench_model(Command& bench) {
  Command command = bench.add("model", "Time a model's training step, or its kernels");
  auto options = std::make_shared<ModelOptions>();
  command.option("name MODEL", options->model, "lenet5, resnet8, resnet20, ...").required();
  command.flag("--primitives", options->primitives,
               "Time each kernel alone: their sum is what a step is made of at the least");
  command.choice("--precision", options->precision, precisions,
                 "Of activations and packed weights");
  command.option("-b,--batch B", options->batch, "Images of one rank")
      .range(1, 1 << 20)
      .with_default();
  add_format_option(command, options->format, table_or_json, "table, or json: one object");
  add_placement_options(command, options->launch.placement, "1");
  add_flight_record_option(command, options->launch.flight_record, "nowhere");
  command.footer("One rank unless -n says otherwise; several measure at the same time.");
  command.does([options](const CommandLine& line) { return run_model(*options, line); });
}

}  // namespace rondo::tools
