// `rondo bench data`: how many images a second the loader of a configuration gives by itself. No
// ranks are started: decoders are threads of a rank, and several ranks share nothing but the
// machine. So what one rank gets with D decoders is what a row with D decoders says.
//
// Whoever trains compares the images/s with those of the training: a loader that is slower than
// training is what the run waits for.

#include <fmt/format.h>

#include <chrono>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include <rondo/train/experiment.hpp>
#include <rondo/train/loader_benchmark.hpp>

#include "command.hpp"
#include "failure.hpp"
#include "machine.hpp"
#include "options.hpp"
#include "table.hpp"

namespace rondo::tools {
namespace {

struct DataOptions {
  std::filesystem::path config = {};
  std::vector<std::string> settings = {};
  int most = 0;  // decoders; 0: as many as there are cores
  double seconds = 1.0;
  Format format = Format::text;
};

// 1, 2, 4, ... and the most: where a doubling stops to help, cores, memory or the disk are used up.
std::vector<int> decoder_counts(int most) {
  std::vector<int> counts;
  for (int count = 1; count < most; count *= 2) counts.push_back(count);
  counts.push_back(most);
  return counts;
}

// Three rates of one measurement. Wall time is what a run waits for, and depends on what else the
// machine does; processor time ("a core") hardly does, and is what machines are compared by.
Table table_of(const train::LoaderTimes& times) {
  const std::string image = fmt::format("{}x{}x{}", times.image.h, times.image.w, times.image.c);
  using Time = train::LoaderTime;
  return TableOf(times.times)
      .add({"data", "data", Align::left}, [&](const Time&) { return times.data; })
      .add({"image", "image", Align::left}, [&](const Time&) { return image; })
      .add({"decoders", "decoders"}, &Time::decoders)
      .add({"images", "images"}, &Time::images)
      .add({"images_per_second", "images/s"}, &Time::images_per_second)
      .add({"images_per_decoder", "a decoder"}, &Time::images_per_decoder)
      .add({"images_per_cpu_second", "a core"}, &Time::images_per_cpu_second);
}

// The configuration is that of a training run, so that exactly its loader is measured.
int run_data(const DataOptions& options) {
  const train::Experiment experiment = train::read_experiment(options.config, options.settings);
  const int threads = read_machine().threads();
  const std::vector<int> counts = decoder_counts(options.most > 0 ? options.most : threads);
  const std::chrono::duration<double> round(options.seconds);
  fmt::print("{}", table_of(train::measure_loader(experiment, counts, round)).in(options.format));
  return exit_done;
}

}  // namespace

void add_bench_data(Command& bench) {
  Command command = bench.add("data", "Measure how fast images are decoded, varied and normalised");
  auto options = std::make_shared<DataOptions>();
  command
      .option("config CONFIG.toml", options->config,
              "A configuration: its [data], seed and batch count")
      .required();
  command
      .option("--set SECTION.KEY=VALUE", options->settings,
              "Overrides a key of the configuration; may be repeated")
      .repeatable();
  command
      .option("-d,--decoders D", options->most,
              "Measure 1, 2, 4, ... up to so many decoders (default: a decoder for each core)")
      .range(1, 1024);
  command.option("--seconds S", options->seconds, "Of each of the five rounds of a row")
      .positive()
      .with_default();
  add_format_option(command, options->format, table_csv_or_json,
                    "table, csv, or json: an array of objects");
  command.footer(
      R"(Rows take turns; figures are those of the median round. The column "a core" has images
for each second of processor time of all threads.)");
  command.does([options](const CommandLine& /*line*/) { return run_data(*options); });
}

}  // namespace rondo::tools
